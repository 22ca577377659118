"""What a multiprocessor does in a cycle, for all estimates: measured on Hopper, near enough elsewhere to compare shapes."""

WARP = 32
REGISTERS, THREADS = 65536, 2048  # of one multiprocessor
GPU_THREADS = 256  # of a block, unless something speaks for more or fewer
MULTIPLY_ADDS = 1640  # of 16-bit elements that its tensor cores make by wgmma, as far as power goes; half as many in TF32
APART_MULTIPLY_ADDS = 1600  # the same where neighbours share no operands, which then come twice from the second-level cache
WARP_PRODUCTS = 1024  # the same by mma.sync
FETCHED_BYTES = 52  # that it gets from the second-level cache
SHARED_BYTES = 119  # that it writes to shared memory or reads there
READ_BYTES = 19  # its share of what memory gives
READ_CYCLES = 900  # until memory answers
FIXED_CYCLES = 3000  # until a block has its first tile, and while it stores its result
EXCHANGE_CYCLES, EXCHANGED_BYTES = 2000, 10  # of blocks that meet, and that a block reads of others in a cycle
LOADS_IN_FLIGHT = 4  # 16-byte loads of one thread that hide the latency of memory
QUERIES, MOST_QUERIES = 4, 8  # heads of one group that share a read of the cache; the same where only all of them can
LONG_CACHE = 8192  # keys from which reading a cache takes longer than combining what was read
SHARED_CACHE = 2 * LONG_CACHE  # and from which it gains more than a launch if all multiprocessors share it
FEW_ROWS = 8  # up to here a product takes the time of reading its matrix
TILE_DEPTH = 64  # 16-bit elements along the reduced axis, half as many of f32: 128 bytes, the span of a swizzle


def exchange_cycles(sums: int, blocks: int) -> float:
    """Until blocks of a cluster, of which each has so many sums, have each added up a share of them; 0 for one block."""
    return EXCHANGE_CYCLES + 4 * sums * (blocks - 1) // blocks / EXCHANGED_BYTES if blocks > 1 else 0.0
