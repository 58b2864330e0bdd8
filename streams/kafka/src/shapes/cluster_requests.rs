//! Descriptions of requests about connections, users, configuration and the cluster.

use kafka_protocol::messages::ApiKey;

use super::schema::{
    Field, RequestShape, array, bool, bytes, float64, int8, int8s, int32, int32s, request, string,
    strings,
};

/// Filter of the ACLs to describe or delete.
const ACL_FILTER: &[Field] = &[
    int8("resource_type_filter"),
    string("resource_name_filter").or_null(),
    int8("pattern_type_filter"),
    string("principal_filter").or_null(),
    string("host_filter").or_null(),
    int8("operation"),
    int8("permission_type"),
];

pub(super) const CLUSTER_REQUESTS: &[RequestShape] = &[
    request(ApiKey::ApiVersions, 0, 4)
        .flexible_since(3)
        .of(&[string("client_software_name").since(3), string("client_software_version").since(3)]),
    request(ApiKey::SaslHandshake, 0, 1).of(&[string("mechanism")]),
    request(ApiKey::SaslAuthenticate, 0, 2).flexible_since(2).of(&[bytes("auth_bytes")]),
    request(ApiKey::DescribeCluster, 0, 2).flexible_since(0).of(&[
        bool("include_cluster_authorized_operations"),
        int8("endpoint_type").since(1),
        bool("include_fenced_brokers").since(2),
    ]),
    request(ApiKey::DescribeLogDirs, 1, 4)
        .flexible_since(2)
        .of(&[array("topics").of(&[string("topic"), int32s("partitions")]).or_null()]),
    request(ApiKey::DescribeAcls, 1, 3).flexible_since(2).of(ACL_FILTER),
    request(ApiKey::CreateAcls, 1, 3).flexible_since(2).of(&[array("creations").of(&[
        int8("resource_type"),
        string("resource_name"),
        int8("resource_pattern_type"),
        string("principal"),
        string("host"),
        int8("operation"),
        int8("permission_type"),
    ])]),
    request(ApiKey::DeleteAcls, 1, 3).flexible_since(2).of(&[array("filters").of(ACL_FILTER)]),
    request(ApiKey::DescribeConfigs, 1, 4).flexible_since(4).of(&[
        array("resources").of(&[
            int8("resource_type"),
            string("resource_name"),
            strings("configuration_keys").or_null(),
        ]),
        bool("include_synonyms"),
        bool("include_documentation").since(3),
    ]),
    request(ApiKey::AlterConfigs, 0, 2).flexible_since(2).of(&[
        array("resources").of(&[
            int8("resource_type"),
            string("resource_name"),
            array("configs").of(&[string("name"), string("value").or_null()]),
        ]),
        bool("validate_only"),
    ]),
    request(ApiKey::IncrementalAlterConfigs, 0, 1).flexible_since(1).of(&[
        array("resources").of(&[
            int8("resource_type"),
            string("resource_name"),
            array("configs").of(&[
                string("name"),
                int8("config_operation"),
                string("value").or_null(),
            ]),
        ]),
        bool("validate_only"),
    ]),
    request(ApiKey::DescribeClientQuotas, 0, 1).flexible_since(1).of(&[
        array("components").of(&[
            string("entity_type"),
            int8("match_type"),
            string("match").or_null(),
        ]),
        bool("strict"),
    ]),
    request(ApiKey::AlterClientQuotas, 0, 1).flexible_since(1).of(&[
        array("entries").of(&[
            array("entity").of(&[string("entity_type"), string("entity_name").or_null()]),
            array("ops").of(&[string("key"), float64("value"), bool("remove")]),
        ]),
        bool("validate_only"),
    ]),
    request(ApiKey::DescribeUserScramCredentials, 0, 0)
        .flexible_since(0)
        .of(&[array("users").of(&[string("name")]).or_null()]),
    request(ApiKey::AlterUserScramCredentials, 0, 0).flexible_since(0).of(&[
        array("deletions").of(&[string("name"), int8("mechanism")]),
        array("upsertions").of(&[
            string("name"),
            int8("mechanism"),
            int32("iterations"),
            bytes("salt"),
            bytes("salted_password"),
        ]),
    ]),
    request(ApiKey::ListConfigResources, 0, 1)
        .flexible_since(0)
        .of(&[int8s("resource_types").since(1)]),
    request(ApiKey::DescribeQuorum, 0, 2).flexible_since(0).of(&[array("topics")
        .of(&[string("topic_name"), array("partitions").of(&[int32("partition_index")])])]),
];
