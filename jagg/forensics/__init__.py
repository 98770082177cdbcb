"""Forensics of published tables: can the reported numbers hold together?"""
