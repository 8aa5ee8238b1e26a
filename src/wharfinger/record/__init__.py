"""The record of who did what: an audit log, its report, metrics for Prometheus, and traces for OpenTelemetry."""

from wharfinger.record.audit_log import AuditLog

__all__ = ["AuditLog"]
