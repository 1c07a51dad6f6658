"""Audits of a prompt: was this record among the demonstrations in front of what is asked?"""
