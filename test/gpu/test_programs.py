"""Kernels of every kind on a GPU: the tests of products, attention, reductions, sampling and batches that elsewhere run in the
PTX interpreter. Code for older GPUs runs as well. Skipped where there is no GPU."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tilec.runtime.artifact import Artifact
from tilec.runtime.cuda import CudaProgram, find_gpu

from .. import (
    test_batch,
    test_copied_products,
    test_delayed_scales,
    test_device_sampling,
    test_online_rows,
    test_ptx_programs,
    test_shared_chains,
    test_sliding_windows,
    test_staged_products,
    test_tensor_cores,
    test_tf32,
)

gpu = find_gpu()
pytestmark = pytest.mark.skipif(gpu is None, reason="no NVIDIA GPU on this machine")
MODULES = (test_batch, test_device_sampling, test_online_rows, test_ptx_programs, test_shared_chains, test_sliding_windows,
           test_tensor_cores, test_tf32)


class RealGpu:
    """What `SimulatedGpu` is, on the device."""

    def __init__(self, artifact: Artifact, weights: Mapping[str, np.ndarray], states: Mapping[str, np.ndarray] | None = None,
                 apart: bool = False) -> None:
        target = artifact.manifest.target
        assert gpu is not None
        if target.endswith("a") and target != gpu[0]:
            pytest.skip(f"code for {target} does not run on {gpu[0]}")
        self.program = CudaProgram(artifact, weights.items())
        for name, values in (states or {}).items():
            self.program._d.cuMemcpyHtoD(self.program._states[name], values.ctypes.data, values.nbytes)

    def run(self, entry: str, arguments: Mapping[str, np.ndarray], symbols: Mapping[str, int]) -> dict[str, np.ndarray]:
        return self.program.run(entry, arguments, symbols)

    def state(self, name: str) -> np.ndarray:
        return self.program.state(name)


@pytest.fixture(autouse=True)
def on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in MODULES:
        monkeypatch.setattr(module, "SimulatedGpu", RealGpu)


# Only what is right: kernels with planted mistakes would hang or end the process.
test_wgmma = test_tensor_cores.test_a_product_of_ragged_sizes_is_that_of_float64
test_wgmma_lengths = test_tensor_cores.test_the_lengths_in_use_decide_and_not_the_capacity
test_wgmma_persistent = test_tensor_cores.test_blocks_walk_over_more_programs_than_there_are_multiprocessors
test_wgmma_epilogues = test_tensor_cores.test_an_epilogue_is_computed_where_the_product_is
test_wgmma_clusters = test_tensor_cores.test_blocks_of_a_cluster_share_the_depth_of_a_product
test_wgmma_batches = test_tensor_cores.test_a_batch_is_a_product_for_every_member
test_wgmma_views = test_tensor_cores.test_operands_are_read_through_views
test_wgmma_random = test_tensor_cores.test_random_products_are_those_of_float64
test_wgmma_attention = test_tensor_cores.test_attention_of_many_queries_is_one_kernel
test_masks = test_tensor_cores.test_attention_with_a_mask_in_memory
test_copied = test_copied_products.test_a_product_of_ragged_sizes_is_that_of_float64
test_copied_layouts = test_copied_products.test_operands_lie_in_any_order
test_copied_epilogues = test_copied_products.test_epilogues_work_on_what_a_warp_holds
test_copied_random = test_copied_products.test_random_products_are_those_of_float64
test_copied_attention = test_copied_products.test_attention_of_many_queries_is_one_kernel
test_staged = test_staged_products.test_a_product_of_ragged_sizes_is_that_of_float64
test_staged_epilogues = test_staged_products.test_an_epilogue_is_computed_where_the_product_is
test_tf32_wgmma = test_tf32.test_a_product_by_wgmma_is_that_of_operands_cut_off
test_tf32_mma = test_tf32.test_a_product_by_mma_is_that_of_operands_cut_off
test_windows_of_one = test_sliding_windows.test_one_query_sees_its_window_and_nothing_else
test_windows_of_many = test_sliding_windows.test_each_of_many_queries_sees_its_own_window
test_delayed_scales_of_rows = test_delayed_scales.test_a_norm_has_no_kernel_of_its_own
test_delayed_scales_over_clusters = test_delayed_scales.test_blocks_of_a_cluster_multiply_the_results_that_they_were_dealt
test_sums_beside = test_delayed_scales.test_blocks_of_a_cluster_that_share_the_depth_deal_out_whole_blocks_of_a_row
test_delayed_scales_of_readers = test_delayed_scales.test_what_reads_a_row_is_multiplied_by_its_factor
test_shared_caches = test_shared_chains.test_programs_that_share_a_cache_find_what_one_would
test_shared_launches = test_shared_chains.test_caches_that_are_read_side_by_side_share_both_launches
test_long_rows = test_online_rows.test_a_cluster_shares_a_row
test_shapes_of_models = test_ptx_programs.test_the_shapes_of_models_compute_what_the_reference_says
test_primops = test_ptx_programs.test_a_primop_alone_computes_what_the_reference_says
test_random_programs = test_ptx_programs.test_a_random_program_computes_what_the_reference_says
test_clusters = test_ptx_programs.test_long_rows_are_reduced_by_the_blocks_of_a_cluster
test_heads_of_96 = test_ptx_programs.test_a_model_in_bf16_with_heads_of_96_has_the_logits_of_the_cpu
test_drawing = test_device_sampling.test_sequences_with_parameters_of_their_own_draw_what_each_draws_alone
test_sequences = test_batch.test_sequences_of_different_lengths_have_the_logits_that_they_have_alone
