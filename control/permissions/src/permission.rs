//! Role that each operation of the daemon and of virtual machines takes, and the volumes that it
//! concerns.
//!
//! An operation that is not listed is refused: a newer daemon gives nobody new rights.

use crate::role::Role;

/// Rights that an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// The least role.
    pub role: Role,
    pub reach: Reach,
}

/// The volumes that an operation concerns, by which users of projects are limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All, or the host: refused to who is limited.
    Everything,
    /// No volume.
    Nothing,
    /// The one in the path: `VOLUME`, or `VOLUME@SNAPSHOT`.
    Named,
    /// The one in the path; the query's `to` names another.
    Compared,
    /// A list, each of whose entries has the volume in this field.
    Listed(&'static str),
    /// The body's `name` and `size`: a new volume.
    Created,
    /// The one in the path; the body may have a new `name` and `size`.
    Changed,
    /// The one in the path is copied to the body's `name`.
    Cloned,
    /// The volume of the snapshot in the path, which gets its size.
    Restored,
    /// The body's list `volumes`.
    Several,
}

const fn to(role: Role, reach: Reach) -> Option<Permission> {
    Some(Permission { role, reach })
}

/// Rights for the operation of this name in the OpenAPI document; `None`: nobody may.
pub fn permission(operation: &str) -> Option<Permission> {
    use Reach::{
        Changed, Cloned, Compared, Created, Everything, Listed, Named, Nothing, Restored, Several,
    };
    use Role::{Administrator, Operator, Viewer};
    match operation {
        "health" | "readiness" | "openapi" => to(Viewer, Nothing),
        "list_volumes" => to(Viewer, Listed("name")),
        "list_snapshots" | "list_attachments" | "list_exports" => to(Viewer, Listed("volume")),
        "show_volume" | "show_snapshot" | "show_attachment" | "show_export" => to(Viewer, Named),
        "diff_snapshot" => to(Viewer, Compared),
        "list_images" | "show_image" | "list_tasks" | "show_task" | "list_events" | "show_pool"
        | "status" | "metrics" | "show_standby" => to(Viewer, Everything),
        // Of the broker, if there is one. Who queries reads contents, as who attaches does.
        "list_topics" | "show_topic" | "show_group" => to(Viewer, Everything),
        "query_topics" | "produce_record" | "reset_group" | "delete_topic" => {
            to(Operator, Everything)
        }
        // Virtual machines are the host's. Who types into one does more than look.
        "list_machines" | "show_machine" => to(Viewer, Everything),
        "create_machines" | "delete_machine" | "start_machine" | "shut_down_machine"
        | "kill_machine" | "attach_disk" | "detach_disk" | "snapshot_machine"
        | "serial_console" | "graphical_console" => to(Operator, Everything),
        "create_volume" => to(Operator, Created),
        "change_volume" => to(Operator, Changed),
        "clone_volume" => to(Operator, Cloned),
        "create_snapshots" => to(Operator, Several),
        "restore_snapshot" => to(Operator, Restored),
        "delete_volume" | "disconnect_volume" | "change_snapshot" | "delete_snapshot" => {
            to(Operator, Named)
        }
        // Devices and sockets of the host are for those who see all of it.
        "attach_volume" | "detach_volume" | "export_volume" | "unexport_volume" | "save_image"
        | "rehearse_image" | "verify_image" | "cancel_task" => to(Operator, Everything),
        "change_pool" | "restore_image" | "delete_image" | "accept_loss" | "promote_standby" => {
            to(Administrator, Everything)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use api::{CONSOLE_STATUS, ENDPOINTS, Endpoint, MACHINE_ENDPOINTS, Method};

    use super::*;

    fn endpoints() -> impl Iterator<Item = &'static Endpoint> {
        ENDPOINTS.iter().chain(MACHINE_ENDPOINTS)
    }

    #[test]
    fn each_operation_is_listed() {
        for endpoint in endpoints() {
            assert!(permission(endpoint.operation).is_some(), "{}", endpoint.operation);
        }
        assert_eq!(permission("shut_down"), None);
    }

    #[test]
    fn what_changes_something_takes_more_than_looking() {
        for endpoint in endpoints() {
            let asked = permission(endpoint.operation).expect("it is listed").role;
            let only_looks = endpoint.method == Method::Get && endpoint.status != CONSOLE_STATUS;
            assert_eq!(asked == Role::Viewer, only_looks, "{endpoint:?}");
        }
    }

    #[test]
    fn what_names_a_volume_in_its_path_is_limited_by_it() {
        for endpoint in endpoints().filter(|it| {
            ["{name}", "{volume}"].iter().any(|placeholder| it.path.contains(placeholder))
        }) {
            let reach = permission(endpoint.operation).expect("it is listed").reach;
            let is_limited = matches!(
                reach,
                Reach::Named
                    | Reach::Compared
                    | Reach::Changed
                    | Reach::Cloned
                    | Reach::Restored
                    | Reach::Everything
            );
            assert!(is_limited, "{endpoint:?}");
        }
    }
}
