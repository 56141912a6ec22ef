"""`python -m newfound`, also under torchrun."""

from newfound.cli import main

main()
