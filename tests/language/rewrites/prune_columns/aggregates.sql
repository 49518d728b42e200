SELECT g.src AS src, g.packets AS packets
FROM (SELECT src, count(*) AS packets, sum(bytes) AS bytes, max(dst) AS dst FROM link1 GROUP BY src) AS g
