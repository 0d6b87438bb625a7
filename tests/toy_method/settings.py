from corpusmill.frozen import Frozen


class SETTINGS(Frozen):
    most_terms: int = 60
