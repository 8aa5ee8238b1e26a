"""The harness: environments, load generator, measurement, tables and verdicts."""
