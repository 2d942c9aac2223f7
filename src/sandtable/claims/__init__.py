"""One file or folder per line of work: every claim binds a world, a model, a prediction and a measurement.

The lab finds these modules through the entry-point group `sandtable.claims`, as it finds those of other packages;
nothing here is imported before a claim is asked for.
"""
