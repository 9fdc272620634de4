// What this machine can do at most, measured with the same team and instruction set as the kernels.
#pragma once

#include "team.h"

namespace kt {

// Read bandwidth in bytes per second: every worker streams its share of `bytes` of node-local memory; the
// best of `passes`.
double read_bandwidth(Team& team, size_t bytes, int passes);

// Multiply-add peak in operations per second over registers only, all workers together; 0 when the team's
// instruction set has no bf16 dot product and `bf16` is asked for.
double fma_peak(Team& team, bool bf16, double seconds);

// Likewise for tiles with their operands loaded from the first-level cache, as every kernel must; 0 without
// tiles.
double tile_loop(Team& team, double seconds);

// Likewise for products of signed bytes that are summed to 32 bits; 0 without vectors of them.
double int8_peak(Team& team, double seconds);

// Seconds, the median of `rounds`, of a job with nothing to do on every worker: from the call until all have
// come and gone. `pause` seconds lie between two jobs; with more than the workers spin (100 microseconds)
// they must be woken.
double job_seconds(Team& team, double pause, int rounds);

// A kernel by itself, in operations per second of all workers together: two tiles times `rows` rows again and
// again, with all operands in the caches. Throws std::invalid_argument where there is no such kernel.
double multiply_alone(Team& team, Format format, Mode mode, int depth, int rows, double seconds);

}  // namespace kt
