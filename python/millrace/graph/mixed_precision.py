"""Whether the sessions of this process compute with mixed precision unless they say otherwise."""

from typing import Any

from millrace import protos

_enabled = False


def set_enabled(enabled: bool) -> None:
    """Says so for the sessions that are made from now on."""
    global _enabled
    _enabled = enabled


def enabled() -> bool:
    """What `set_enabled` said last; False at first."""
    return _enabled


def session_config(config: Any) -> Any:
    """What a session is made with that was given this ConfigProto, or None."""
    if not _enabled:
        return config
    out = protos.ConfigProto()
    if config is not None:
        out.CopyFrom(config)
    options = out.graph_options.rewrite_options
    if options.auto_mixed_precision == protos.RewriterConfig.OFF:
        return config
    options.auto_mixed_precision = protos.RewriterConfig.ON
    return out
