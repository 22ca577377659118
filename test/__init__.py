"""Tests; kernels of whole models are verified after every pass here."""

from tilec.pipelines import compiler

compiler.VERIFY_EACH = True
