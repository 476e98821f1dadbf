"""Programs that run as they stand. From the root of the repository, with WINDLASS_DATABASE_URL set (`windlass up` says it):

windlass worker --app examples.mail:app      in one terminal
python -m examples.mail                      in another
"""
