-- Query 3: connections over the first link, without as many of the same source as went over the second.
SELECT time, src, dst
FROM negation(sliding(link1, '2000 seconds'), sliding(link2, '2000 seconds'), 'src')
