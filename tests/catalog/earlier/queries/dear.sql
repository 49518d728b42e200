SELECT time, symbol, price FROM quotes WHERE price > 30
