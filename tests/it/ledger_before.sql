-- Rows as the program wrote them whose tables had hashes of names: of two clusters, of each kind, with and without what may be absent.
INSERT INTO clusters (name) VALUES ('east'), ('west');
INSERT INTO entries (id, revision, more_fields, same, namespace_key, release_key, user_key, verdict_key, kind, namespace, release,
    object_group, object_kind, object_namespace, object_name, operation, user_name, user_groups, verdict, reason, detail, fields,
    uid, facts, cluster) VALUES
    (151542034432032773, NULL, 0, NULL, -2128831035, NULL, -2128831035, 1434043348, 'repair', '', NULL, '', 'Node', NULL, 'n1', NULL, '', '[]', 'Failed', 'drift', 'the server said no', '[]', '', NULL, 1),
    (883320422399995910, 7, 0, -1234567890123456789, -1471684439, 265927825, -2128831035, -1228823169, 'record', 'shop', 'web', '', 'Record', 'shop', 'sh.helm.release.v1.web.v7', NULL, '', '[]', 'deployed', '', '', '[]', '', NULL, 1),
    (883320422400000007, 7, 2, NULL, -1471684439, 265927825, -612867447, 131463815, 'verdict', 'shop', 'web', 'apps', 'Deployment', 'shop', 'web', 'UPDATE', 'mallory', '["people","ops"]', 'Deny', 'drift', '', '[{"path":"/spec/replicas","declared":"3","old":"3","new":"0"}]', '0000002a-0000-4000-8000-000000000000', '{"edit":"cut"}', 1),
    (883851266048000008, 1, 0, NULL, -268152013, -1465978862, 809948691, 128000017, 'verdict', 'läden', 'it''s', '', 'Secret', 'läden', 'db', 'DELETE', 'jürgen@example.com', '["system:authenticated"]', 'Warn', 'deletion', 'a
b', '[{"path":"/data/password","new":"(redacted 5f0c91d2a7b3e684)"}]', 'u', NULL, 2),
    (884028232704000009, NULL, 0, 42, -1471684439, NULL, -2027809817, 251913216, 'allowance', 'shop', NULL, '', 'ConfigMap', 'shop', 'settings', NULL, 'alice', '["people"]', 'Opened', '', 'until 2026-11-20T01:00:00Z; INC-1', '[{"path":"/data/a"}]', '', NULL, 1);
UPDATE entries SET repeats = repeats + 3 WHERE cluster = 1 AND id = 883320422400000007;
