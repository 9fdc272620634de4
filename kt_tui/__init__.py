"""kt-tui: a full-screen control panel for running a huge mixture-of-experts model on one machine."""

__version__ = "0.1.0"
