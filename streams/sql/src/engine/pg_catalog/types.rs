//! Types in the catalogue.

/// A type of PostgreSQL that values in this server have, or that clients refer to.
pub(super) struct Type {
    pub(super) oid: u32,
    pub(super) name: &'static str,
    /// Size in bytes, or -1 if it varies.
    pub(super) size: i16,
    pub(super) category: &'static str,
    /// Oid of the array type, or 0.
    pub(super) array: u32,
    /// Name in SQL.
    pub(super) sql_name: &'static str,
}

const fn base(
    (oid, array): (u32, u32),
    name: &'static str,
    size: i16,
    (category, sql_name): (&'static str, &'static str),
) -> Type {
    Type { oid, name, size, category, array, sql_name }
}

pub(super) const TYPES: &[Type] = &[
    base((16, 1000), "bool", 1, ("B", "boolean")),
    base((17, 1001), "bytea", -1, ("U", "bytea")),
    base((18, 1002), "char", 1, ("Z", "\"char\"")),
    base((19, 1003), "name", 64, ("S", "name")),
    base((20, 1016), "int8", 8, ("N", "bigint")),
    base((21, 1005), "int2", 2, ("N", "smallint")),
    base((22, 1006), "int2vector", -1, ("A", "int2vector")),
    base((23, 1007), "int4", 4, ("N", "integer")),
    base((24, 1008), "regproc", 4, ("N", "regproc")),
    base((25, 1009), "text", -1, ("S", "text")),
    base((26, 1028), "oid", 4, ("N", "oid")),
    base((28, 1011), "xid", 4, ("U", "xid")),
    base((30, 1013), "oidvector", -1, ("A", "oidvector")),
    base((114, 199), "json", -1, ("U", "json")),
    base((700, 1021), "float4", 4, ("N", "real")),
    base((701, 1022), "float8", 8, ("N", "double precision")),
    base((705, 0), "unknown", -2, ("X", "unknown")),
    base((869, 1041), "inet", -1, ("I", "inet")),
    base((1042, 1014), "bpchar", -1, ("S", "character")),
    base((1043, 1015), "varchar", -1, ("S", "character varying")),
    base((1082, 1182), "date", 4, ("D", "date")),
    base((1083, 1183), "time", 8, ("D", "time without time zone")),
    base((1114, 1115), "timestamp", 8, ("D", "timestamp without time zone")),
    base((1184, 1185), "timestamptz", 8, ("D", "timestamp with time zone")),
    base((1186, 1187), "interval", 16, ("T", "interval")),
    base((1700, 1231), "numeric", -1, ("N", "numeric")),
    base((2205, 2210), "regclass", 4, ("N", "regclass")),
    base((2206, 2211), "regtype", 4, ("N", "regtype")),
    base((2249, 2287), "record", -1, ("P", "record")),
    base((2278, 0), "void", 4, ("P", "void")),
    base((2950, 2951), "uuid", 16, ("U", "uuid")),
    base((3802, 3807), "jsonb", -1, ("U", "jsonb")),
    base((4089, 4090), "regnamespace", 4, ("N", "regnamespace")),
];

/// Functions that receive values in binary form: the oid of the type, and the function's oid and
/// name.
pub(super) const RECEIVE: &[(u32, u32, &str)] = &[
    (16, 2436, "boolrecv"),
    (17, 2412, "bytearecv"),
    (18, 2434, "charrecv"),
    (19, 2422, "namerecv"),
    (20, 2408, "int8recv"),
    (21, 2404, "int2recv"),
    (22, 2410, "int2vectorrecv"),
    (23, 2406, "int4recv"),
    (24, 2444, "regprocrecv"),
    (25, 2414, "textrecv"),
    (26, 2418, "oidrecv"),
    (28, 2440, "xidrecv"),
    (30, 2420, "oidvectorrecv"),
    (114, 323, "json_recv"),
    (700, 2424, "float4recv"),
    (701, 2426, "float8recv"),
    (705, 2416, "unknownrecv"),
    (869, 2496, "inet_recv"),
    (1042, 2430, "bpcharrecv"),
    (1043, 2432, "varcharrecv"),
    (1082, 2468, "date_recv"),
    (1083, 2470, "time_recv"),
    (1114, 2474, "timestamp_recv"),
    (1184, 2476, "timestamptz_recv"),
    (1186, 2478, "interval_recv"),
    (1700, 2460, "numeric_recv"),
    (2205, 2452, "regclassrecv"),
    (2206, 2454, "regtyperecv"),
    (2249, 2402, "record_recv"),
    (2278, 3120, "void_recv"),
    (2950, 2961, "uuid_recv"),
    (3802, 3805, "jsonb_recv"),
    (4089, 4087, "regnamespacerecv"),
    (0, ARRAY_RECEIVE_OID, "array_recv"),
];

/// Function that receives arrays, by which clients recognize array types.
pub(super) const ARRAY_RECEIVE_OID: u32 = 2400;

/// Returns the name of a type as in `format_type`.
pub(super) fn sql_name(oid: u32, modifier: Option<i64>) -> String {
    let suffix = match (oid, modifier.filter(|it| *it >= 4).map(|it| it - 4)) {
        (1700, Some(scaled)) => format!("({},{})", scaled >> 16, scaled & 0xffff),
        (1042 | 1043, Some(length)) => format!("({length})"),
        _ => String::new(),
    };
    let plain = TYPES.iter().find(|it| it.oid == oid);
    let array = TYPES.iter().find(|it| it.array == oid && oid > 0);
    match (plain, array) {
        (Some(found), _) => format!("{}{suffix}", found.sql_name),
        (_, Some(element)) => format!("{}[]", element.sql_name),
        (None, None) if oid == 0 => "-".to_owned(),
        (None, None) => "???".to_owned(),
    }
}

/// Returns the oid of a type by its name in SQL or in the catalogue.
pub(super) fn oid_of(name: &str) -> Option<u32> {
    let name = name.trim().to_ascii_lowercase();
    // Quoted with its schema.
    let name = match name.rsplit_once("\".\"") {
        Some((_, last)) => last.trim_end_matches('"').to_owned(),
        None => name,
    };
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    if let Some(element) = name.strip_suffix("[]") {
        let element = oid_of(element)?;
        return TYPES.iter().find(|it| it.oid == element && it.array > 0).map(|it| it.array);
    }
    // Other names for types in SQL.
    let name = match name {
        "int" => "int4",
        "decimal" => "numeric",
        "float" => "float8",
        other => other,
    };
    if let Some(element) = name.strip_prefix('_') {
        return TYPES.iter().find(|it| it.name == element && it.array > 0).map(|it| it.array);
    }
    TYPES.iter().find(|it| it.name == name || it.sql_name == name).map(|it| it.oid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_by_both_their_names() {
        for (name, oid) in [
            ("int4", 23),
            ("integer", 23),
            ("pg_catalog.text", 25),
            ("\"pg_catalog\".\"int4\"", 23),
            ("Double Precision", 701),
            ("_int4", 1007),
            ("text[]", 1009),
            ("timestamp with time zone", 1184),
        ] {
            assert_eq!(oid_of(name), Some(oid), "{name}");
        }
        for name in ["", "hstore", "_", "[]", "unknown[]"] {
            assert_eq!(oid_of(name), None, "{name}");
        }
    }

    #[test]
    fn modifiers_are_written_behind_the_name() {
        let numeric = (10 << 16) + 2 + 4;
        assert_eq!(sql_name(1700, Some(numeric)), "numeric(10,2)");
        assert_eq!(sql_name(1043, Some(24)), "character varying(20)");
        assert_eq!(sql_name(25, Some(-1)), "text");
        assert_eq!(sql_name(1016, None), "bigint[]");
        assert_eq!((sql_name(0, None), sql_name(99, None)), ("-".to_owned(), "???".to_owned()));
    }
}
