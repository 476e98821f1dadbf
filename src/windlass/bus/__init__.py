"""Hints that there is work. They may be lost, doubled or late: everything they speed up is also polled."""
