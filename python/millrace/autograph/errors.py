"""What goes wrong while code is converted."""


class ConversionError(Exception):
    """A function cannot be converted. The message says why and where."""


class SourceError(ConversionError, ValueError):
    """There is no source code for a function, or not that of this function."""


class UnsupportedError(ConversionError, NotImplementedError):
    """A function uses what conversion does not cover."""
