"""FlexStructRAG (arXiv 2604.16312): per-document hypergraph, graph and clusters, merged over documents."""
