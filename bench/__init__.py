"""Measurements of the service, one idea a folder. ``python -m bench`` (`make bench`) prints every
target with its peers; ``rows`` says what it measures, and is where to start reading.

``rows``: the rows, and what each must reach. ``peers``: whom we are compared with. ``load``: closed
and open loops. ``probes``: the machine and its raw disk. ``results``: the file of a run, its table
and plots. ``smoke`` fails on a collapse, and ``cost`` counts what an append costs.

The others each answer one question, and are run by themselves: ``storage`` (log storage without a
cluster), ``parts`` (one part of a store or client alone), ``neighbours`` (somebody quiet beside
somebody loud), ``copies`` (truncation, archive, mirror, catch-up), ``spark``, and ``keeper``
(HAKeeper with 100 stores in virtual time).
"""
