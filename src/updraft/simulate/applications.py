"""Virtual applications shaped like the papers': T1 rolling top-k and T2 sentiment (paper 5), FPD (paper 1).

Costs per row are chosen so that 1000 rows per second need about three of four workers with two cores at 65 % of the time;
selectivities of T1 follow the paper's Table 2 in spirit (a splitter multiplies rows, ranks thin them out), scaled down.
"""

from __future__ import annotations

from updraft.simulate.cluster import Application, VirtualOperator

TOP_K = Application(
    name="topk",
    source_s_per_row=0.00005,
    operators=(
        VirtualOperator(
            name="split", inputs=("lines",), level=1, cpu_s_per_row=0.0009, rows_out=4.0, highest=8
        ),
        VirtualOperator(
            name="count", inputs=("split",), level=2, cpu_s_per_row=0.00045, rows_out=0.1, highest=8
        ),
        VirtualOperator(
            name="rank", inputs=("count",), level=3, cpu_s_per_row=0.00005, rows_out=0.01, highest=4
        ),
    ),
)

SENTIMENT = Application(
    name="sentiment",
    source_s_per_row=0.00005,
    operators=(
        VirtualOperator(
            name="score", inputs=("tweets",), level=1, cpu_s_per_row=0.0027, rows_out=1.0, highest=8
        ),
        VirtualOperator(
            name="mood", inputs=("score",), level=2, cpu_s_per_row=0.0003, rows_out=0.1, highest=4
        ),
    ),
)

FPD = Application(
    name="fpd",
    source_s_per_row=0.00002,
    operators=(
        VirtualOperator(
            name="generator", inputs=("tweets",), level=1, cpu_s_per_row=0.0002, rows_out=3.0, highest=2
        ),
        VirtualOperator(
            name="detector",
            inputs=("generator",),
            level=2,
            cpu_s_per_row=0.0011,
            rows_out=0.01,
            tasks=20,
            highest=20,
        ),
        VirtualOperator(
            name="reporter", inputs=("detector",), level=3, cpu_s_per_row=0.0001, highest=1, tasks=1
        ),
    ),
)
