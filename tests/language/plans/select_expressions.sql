SELECT
  upper(protocol) AS protocol,
  bytes * 8 AS bits,
  bytes IS NULL OR bytes BETWEEN 1 AND 40 AS small,
  coalesce(dst, 'nowhere') AS dst,
  CASE WHEN bytes > 1000 THEN 'long' WHEN bytes > 100 THEN 'middle' ELSE 'short' END AS length,
  CAST(bytes AS double) / 1024 AS kilobytes,
  time + INTERVAL '5' MINUTE AS later,
  event_time() AS happened
FROM link1
WHERE protocol IN ('ftp', 'telnet') AND NOT src LIKE '10.%' AND time >= '2026-11-18T02:00:00'
