SELECT upper(protocol) AS upper_protocol, count(*) AS packets
FROM link1
GROUP BY upper_protocol
