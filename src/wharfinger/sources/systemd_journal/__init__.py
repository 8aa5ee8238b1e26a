"""The journal of systemd as logs, one for each unit: read from the end, by time, level, text and boot, and followed."""

from __future__ import annotations

from wharfinger.sources.systemd_journal.source import Journal, journal

__all__ = ["Journal", "journal"]
