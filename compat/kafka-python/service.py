"""Laid into kafka-python's tests, whose archive leaves this module out: nothing of it is used with a given broker."""


class ExternalService:
    def __init__(self, host, port):
        pass


class SpawnedService:
    pass
