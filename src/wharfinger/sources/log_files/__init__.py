"""Logs as live resources: followed across rotation, read from their end, by time, level and text."""

from __future__ import annotations

from wharfinger.sources.log_files.log_follower import Follower
from wharfinger.sources.log_files.source import Logs, logs

__all__ = ["Follower", "Logs", "logs"]
