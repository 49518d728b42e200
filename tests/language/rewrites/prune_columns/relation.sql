SELECT q.symbol AS symbol, companies.sector AS sector FROM quotes AS q JOIN companies ON q.symbol = companies.symbol
