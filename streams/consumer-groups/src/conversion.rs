//! A group changes its protocol while members are there: online upgrade and downgrade of KIP-848.
//!
//! ```text
//!                  a member comes by the protocol of KIP-848
//! classic group ────────────────────────────────────────────▶ consumer group, in which members
//!   (rebalance)                                                 of both protocols are
//!         ▲                                                              │
//!         └── members are left, and all speak the classic protocol ◀─────┘
//! ```
//!
//! No partition gets a second reader by it. A member has in the new group what it may read as the
//! old one knows: what it was assigned, and what it said when it last joined that it reads and has
//! not been heard to give up since. It gives up what it loses by the rules of the new group.
//!
//! One record changes the kind of group and has all members in it. In a consumer group that is cut
//! off behind that record all speak the classic protocol: they are told to join, and the first that
//! does makes it a classic group.

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

/// The consumer group of a classic group's members, who are consumers; it is not stored yet. `None`
/// where what they read cannot be read.
pub(crate) fn upgraded(
    classic: &ClassicGroup,
    topics: &dyn Topics,
    context: &CallContext<'_>,
) -> Option<ConsumerGroup> {
    // Epochs go on where the generations end.
    let mut group = ConsumerGroup::new(classic.id.clone(), classic.generation_max, context.unix_ms);
    let mut claims = BTreeMap::new();
    for (id, member) in &classic.members {
        let subscription =
            embedded::subscription_of(member.protocols.iter().map(|it| &it.metadata))?;
        let assigned = resolve(&embedded::assignment(&member.assignment)?, topics);
        // One that was in no generation yet was assigned nothing, and joins the new group.
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
    // A member that was assigned less than it had may still read the rest.
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

/// Makes the member the owner of those partitions that nobody owns.
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

/// The classic group of a consumer group's members of the classic protocol, without one whose place
/// is taken, and stored: they are to join again.
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
        // The epoch that settled members have: theirs is the generation until they join.
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

/// A member as it was by the classic protocol. `None` for one that does not speak it.
fn former(member: &consumer::Member, topics: &dyn Topics) -> Option<classic::Member> {
    let consumer::Member { profile, classic, .. } = member;
    let terms = classic.as_ref()?;
    // All that it may read until it joins.
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
