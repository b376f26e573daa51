"""The words of the lab's tables: how their values were measured or derived."""

from typing import NamedTuple

from hpml_jobs.core.strategies import BandwidthKind

TIME = (
    "Time: seconds per {what} of the slowest process, data loading included. Speedup: Time "
    "of {reference} / Time [likely range]."
)
Q1 = (
    "Seconds per {what} on one {unit}. Training: without data loading; copies to the device, "
    "gradients and update are included. Time: everything."
)
MEASURED = (
    "Seconds of the slowest process, in an epoch with each part timed. Compute: copies to the "
    "device, forward, backward, optimizer. Comm: communication that is not overlapped with "
    "computation, and waiting for other processes."
)
WITH_OTHER = "Of a script, time outside of its steps is in neither (other in Phases)."
PACKED = "Comm includes packing by hand: flattening, copying back and averaging the gradients."
REPORTED = "As reported by the source, not measured here: seconds per epoch of Compute and Comm."


RESIDUAL = (
    "By subtraction: derived, not measured. Comm = train_s(N, b) - train_s(1, b) x ceil(D/N) / D, "
    "with D training samples, and Compute = train_s - Comm, in seconds per {per} without data "
    "loading (with it where train_s is not reported). Communication hidden behind backward is not "
    "in Comm."
)
BUS = (
    "Bus bandwidth: 2(N-1)/N x bytes of gradients of a process (what a ring all-reduce sends) / "
    "seconds of their communication, without waiting. 1 GB = 1e9 bytes."
)
SHARDED = (
    "Bus bandwidth: (N-1)/N x bytes of gradients that a process reduce-scatters / seconds of it, "
    "without waiting. On CPUs gloo moves the whole tensor, so half of a link's "
    "speed is the most. 1 GB = 1e9 bytes."
)
ROOT_WIRE = (
    "Measured on root's wire in the instrumented epoch; not a bus bandwidth. 2(N-1) x S bytes per "
    "iteration pass through rank 0's link, divided by the seconds in which rank 0 gathers or "
    "scatters gradients. These contain waiting for slower processes, which the busbw of "
    "all-reduces does not: the two are not comparable. 1 GB = 1e9 bytes."
)
NOMINAL = (
    "Nominal: DataParallel does not send ring all-reduces. The figure is 2(N-1)/N x I_N x S / "
    "seconds of the reduction of gradients in the instrumented epoch: the bandwidth of a ring that "
    "takes this time. 1 GB = 1e9 bytes."
)
OF_PEAK = (
    "Peak: bus bandwidth of an all-reduce (sum over processes) in the same run, without training, "
    "in messages of {:.3g} MB; smaller ones are slower."
)
RESIDUAL_BANDWIDTH = (
    "Bus bandwidth by subtraction: derived, not measured. 2(N-1)/N x I_N x S / Comm, with I_N "
    "iterations, Comm of Table 2r, if it is above zero, and S = {gradient_bytes} bytes of "
    "gradients. 1 GB = 1e9 bytes."
)
RESIDUAL_ROOT_WIRE = (
    "Rate on root's wire by subtraction: derived, not measured; not a bus bandwidth. 2(N-1) "
    "x I_N x S / Comm, with Comm of Table 2r and S = {gradient_bytes} bytes of gradients. 1 GB = "
    "1e9 bytes."
)
RESIDUAL_SHARDED = (
    "Bus bandwidth by subtraction: derived, not measured; a lower bound. (N-1)/N x I_N x S / "
    "Comm, with Comm of Table 2r and S = {gradient_bytes} bytes of gradients: Comm has the "
    "all-gathers of parameters too. 1 GB = 1e9 bytes."
)
RESIDUAL_NOMINAL = "Nominal: DataParallel does not send ring all-reduces."


class BandwidthWords(NamedTuple):
    """The words of Tables 3 and 3r for a kind of bandwidth; `aside` is appended to the unit."""

    title: str
    aside: str
    measured: str
    residual: tuple[str, ...]


BANDWIDTH = {
    BandwidthKind.BUS: BandwidthWords("bus bandwidth", "", BUS, (RESIDUAL_BANDWIDTH,)),
    BandwidthKind.NOMINAL: BandwidthWords(
        "nominal bandwidth",
        ", nominal",
        NOMINAL,
        (RESIDUAL_BANDWIDTH, RESIDUAL_NOMINAL),
    ),
    BandwidthKind.ROOT_WIRE: BandwidthWords(
        "bandwidth on root's wire",
        ", root's wire",
        ROOT_WIRE,
        (RESIDUAL_ROOT_WIRE,),
    ),
    BandwidthKind.SHARDED: BandwidthWords(
        "bus bandwidth of reduce-scatters", "", SHARDED, (RESIDUAL_SHARDED,)
    ),
}
