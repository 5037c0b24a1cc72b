"""What is recorded of the work: logs, metrics, traces, the audit log?"""
