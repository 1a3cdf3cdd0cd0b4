"""Discovery: which heads look at what a query means, under every choice that the papers vary.

Data flows from :mod:`.corpora` (samples) over :mod:`.prompts` (tokens), :mod:`.capture` (attention, reduced on the way)
and :mod:`.measure` (per-sample measures) to :mod:`.score` and :mod:`.methods` (rankings) and :mod:`.output` (files);
:mod:`.discover` runs it all, :mod:`.overlap` compares what came out.
"""
