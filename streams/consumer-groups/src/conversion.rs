//! Online conversion of a group between protocols: upgrade and downgrade of KIP-848.
//!
//! ```text
//!                  a member comes by the protocol of KIP-848
//! classic group ────────────────────────────────────────────▶ consumer group, in which members
//!   (rebalance)                                                 of both protocols are
//!         ▲                                                              │
//!         └── members are left, and all speak the classic protocol ◀─────┘
//! ```
//!
//! A conversion never gives a partition a second reader. In the new group, a member owns the
//! partitions that the old group knows it may read: those assigned to it, and those that it
//! reported as owned when it last joined and has not revoked since. It revokes partitions by the
//! rules of the new group.
//!
//! A single record converts the group and contains all members. In a consumer group restored from a
//! log that ends behind that record, all members use the classic protocol: they are told to join,
//! and the first join makes it a classic group.

use std::collections::BTreeMap;

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use crate::classic::{self, ClassicGroup};
use crate::consumer::{
    self, ClassicTerms, ConsumerGroup, Partition, Partitions, Profile, named, resolve,
};
use crate::effect::CallContext;
use crate::embedded::{self, PROTOCOL_TYPE, Subscription};
use crate::topics::Topics;

/// Returns the consumer group with a classic group's members, who must be consumers. It is not
/// stored yet. `None` if a subscription or assignment is malformed.
pub(crate) fn upgraded(
    classic: &ClassicGroup,
    topics: &dyn Topics,
    context: &CallContext<'_>,
) -> Option<ConsumerGroup> {
    // Epochs continue after the generations.
    let mut group = ConsumerGroup::new(classic.id.clone(), classic.generation_max, context.unix_ms);
    let mut claims = BTreeMap::new();
    for (id, member) in &classic.members {
        let subscription =
            embedded::subscription_of(member.protocols.iter().map(|it| &it.metadata))?;
        let assigned = resolve(&embedded::assignment(&member.assignment)?, topics);
        // A new member has no assignment. It joins the new group.
        if member.is_new {
            continue;
        }
        claims.insert(id.clone(), resolve(&subscription.owned, topics));
        let assigned = claim(&mut group, id, assigned);
        group.targets.insert(id.clone(), assigned.clone());
        let epoch = classic.generation;
        let member = modern(member, subscription, epoch, assigned, context);
        if let Some(instance) = &member.profile.instance {
            group.instances.insert(instance.clone(), id.clone());
        }
        group.members.insert(id.clone(), member);
    }
    // A member whose assignment has shrunk may still read the other partitions.
    for (id, owned) in claims {
        let revoking = claim(&mut group, &id, owned);
        let member = group.members.get_mut(&id).expect("each that has claims was put in");
        let timeout_ms = i64::from(member.profile.rebalance_timeout_ms);
        let until_ms = context.now_ms.saturating_add(timeout_ms);
        member.revoke_until_ms = (!revoking.is_empty()).then_some(until_ms);
        member.revoking = revoking;
    }
    Some(group)
}

/// Makes the member the owner of those partitions that have none. Returns them.
fn claim(group: &mut ConsumerGroup, id: &StrBytes, partitions: Partitions) -> Partitions {
    let is_free = |it: &Partition| !group.owners.contains_key(it);
    let free: Partitions = partitions.into_iter().filter(is_free).collect();
    group.owners.extend(free.iter().map(|it| (*it, id.clone())));
    free
}

fn modern(
    member: &classic::Member,
    subscription: Subscription,
    epoch: i32,
    assigned: Partitions,
    context: &CallContext<'_>,
) -> consumer::Member {
    let profile = Profile {
        instance: member.instance.clone(),
        rack: subscription.rack,
        client_id: member.client_id.clone(),
        host: member.host.clone(),
        principal: StrBytes::default(),
        rebalance_timeout_ms: member.rebalance_timeout_ms,
        names: subscription.names.into_iter().collect(),
        pattern: None,
        assignor: None,
    };
    let session_timeout_ms = member.session_timeout_ms;
    let classic = Some(ClassicTerms { session_timeout_ms, protocols: member.protocols.clone() });
    let previous_epoch = epoch;
    let mut modern = consumer::Member {
        profile,
        epoch,
        previous_epoch,
        assigned,
        classic,
        ..consumer::Member::default()
    };
    modern.refresh(context);
    modern
}

/// Creates and stores the classic group with a consumer group's classic members, except a replaced
/// one. They must join again.
pub(crate) fn downgraded(
    group: &ConsumerGroup,
    replaced: Option<&StrBytes>,
    topics: &dyn Topics,
    context: &mut CallContext<'_>,
) -> ClassicGroup {
    let members = group.members.iter().filter(|(id, _)| Some(*id) != replaced);
    let members: BTreeMap<StrBytes, classic::Member> =
        members.filter_map(|(id, member)| Some((id.clone(), former(member, topics)?))).collect();
    let classic = if members.is_empty() {
        ClassicGroup::take_over(group.id.clone(), group.epoch, context)
    } else {
        // Epoch of settled members, which is their generation until they join.
        let mut classic =
            ClassicGroup::new(group.id.clone(), group.assignment_epoch, context.unix_ms);
        classic.generation_max = group.epoch;
        classic.protocol_type = Some(PROTOCOL_TYPE.into());
        for (id, member) in members {
            if let Some(instance) = &member.instance {
                classic.instances.insert(instance.clone(), id.clone());
            }
            classic.members.insert(id, member);
        }
        classic.begin_again(context);
        classic
    };
    for id in group.members.keys() {
        group.persist_removal(id, context);
    }
    classic
}

/// Converts a member to one of the classic protocol. `None` if it uses the new protocol.
fn former(member: &consumer::Member, topics: &dyn Topics) -> Option<classic::Member> {
    let consumer::Member { profile, classic, .. } = member;
    let terms = classic.as_ref()?;
    // All partitions that it may read until it joins.
    let owned: Partitions = member.assigned.union(&member.revoking).copied().collect();
    let assignment: Bytes =
        embedded::encode_assignment(member.subscription_version(), &named(&owned, topics));
    Some(classic::Member {
        instance: profile.instance.clone(),
        client_id: profile.client_id.clone(),
        host: profile.host.clone(),
        session_timeout_ms: terms.session_timeout_ms,
        rebalance_timeout_ms: profile.rebalance_timeout_ms,
        protocols: terms.protocols.clone(),
        assignment,
        session_until_ms: member.session_until_ms,
        is_new: false,
        owes_sync: false,
        former_epoch: Some(member.epoch),
        join: None,
        sync: None,
    })
}
