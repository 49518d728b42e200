SELECT n.dst AS dst FROM negation(sliding(link1, '1 hour'), sliding(link2, '1 hour'), 'src') AS n
