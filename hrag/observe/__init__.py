"""What does hrag record about its work in logs, metrics, traces and the audit log?"""
