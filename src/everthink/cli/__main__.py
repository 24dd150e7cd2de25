"""`python -m everthink.cli` is `everthink`."""

from .main import main

main()
