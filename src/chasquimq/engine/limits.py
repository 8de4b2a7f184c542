"""What the limits of a producer forbid: names, delays and jobs beyond them."""

from chasquimq.config import ProducerConfig
from chasquimq.errors import ConfigError
from chasquimq.wire.entry import MAX_ID_BYTES, MAX_NAME_BYTES

# What "any delay" means: scores of the delayed set are exact up to 2**53 ms.
_LONGEST_DELAY_SECS = 2**53 // 1_000 // 2

SURELY_SHORT = MAX_NAME_BYTES // 4
"""A name of so many characters fits, whatever they are."""


def check_name(name: str) -> None:
    """Refuse a name that is longer than a name may be on the wire."""
    name_bytes = len(name.encode())
    if name_bytes > MAX_NAME_BYTES:
        msg = (
            f"job name exceeds {MAX_NAME_BYTES}-byte cap (got {name_bytes} bytes): "
            "put what varies into the data"
        )
        raise ConfigError(msg)


def check_id(job_id: str) -> None:
    """Refuse an id that is longer than one may be: it becomes part of keys."""
    id_bytes = len(job_id.encode())
    if id_bytes > MAX_ID_BYTES:
        msg = (
            f"job_id takes {id_bytes} bytes, at most {MAX_ID_BYTES} are allowed: use a digest of "
            "what makes the job unique"
        )
        raise ConfigError(msg)


def check_delay(config: ProducerConfig, delay_ms: int, run_at_ms: int | None, now_ms: int) -> None:
    """Refuse a delay, or an instant, too far away."""
    longest = config.max_delay_secs or _LONGEST_DELAY_SECS
    if run_at_ms is not None:
        delay_ms = run_at_ms - now_ms
    if delay_ms // 1_000 > longest:
        msg = (
            f"delay {delay_ms // 1_000}s exceeds max_delay_secs {longest}s: "
            "shorten it, or raise max_delay_secs (0 accepts any)"
        )
        raise ConfigError(msg)


def check_size(config: ProducerConfig, name: str, envelope: bytes) -> None:
    """Refuse a job that workers would not take."""
    if len(envelope) > config.max_payload_bytes:
        msg = (
            f"job {name!r} takes {len(envelope)} bytes, max_payload_bytes is "
            f"{config.max_payload_bytes}: store the data elsewhere and pass a reference"
        )
        raise ValueError(msg)
