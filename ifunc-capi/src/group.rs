//! Groups of nodes.

use std::ffi::c_char;

use ifunc_rt::group::Group;

use crate::guard::{Fault, duration, enter, enter_or};
use crate::source::ifunc_source;
use crate::status::ifunc_status;
use crate::target::ifunc_target;

/// The nodes of a group, by number, and where they listen. One thread at a time may use it.
pub struct ifunc_group(Group);

impl ifunc_group {
    fn change<E: Into<Fault>>(
        &mut self,
        change: impl FnOnce(Group) -> Result<Group, E>,
    ) -> Result<ifunc_status, Fault> {
        self.0 = change(self.0.clone()).map_err(Into::into)?;
        Ok(ifunc_status::Ok)
    }
}

/// Makes a group in which this node has a number, and no other node is known yet. `group` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_group_create(number: u32, group: *mut *mut ifunc_group) -> ifunc_status {
    enter(|| {
        let out = out!(group);
        Ok(out.set(ifunc_group(Group::new(number))))
    })
}

/// Makes the group of the processes that a launcher started (`mpirun`, `srun`): numbers are its ranks, and the environment says where
/// addresses are found (IFUNC_RENDEZVOUS, IFUNC_HOSTS, IFUNC_HOSTFILE). `group` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_group_launched(group: *mut *mut ifunc_group) -> ifunc_status {
    enter(|| {
        let out = out!(group);
        Ok(out.set(ifunc_group(Group::launched()?)))
    })
}

/// Adds a node that listens at an address. The number of this node is ignored: the list may be the same on all. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_group_add_node(
    group: *mut ifunc_group,
    number: u32,
    address: *const c_char,
) -> ifunc_status {
    enter(|| {
        let (group, address) = (object_mut!(group), text!(address));
        group.change(|group| group.node(number, address))
    })
}

/// How long joining waits for the other nodes, in nanoseconds. Default 60 s. `group` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_group_set_timeout(group: *mut ifunc_group, ns: u64) -> ifunc_status {
    enter(|| object_mut!(group).change(|group| Ok::<_, Fault>(group.timeout(duration(ns)))))
}

/// Joins without waiting for the others: a link is made when something is sent to its node first. `group` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_group_set_on_demand(group: *mut ifunc_group) -> ifunc_status {
    enter(|| object_mut!(group).change(|group| Ok::<_, Fault>(group.on_demand())))
}

/// The number of this node; UINT32_MAX if `group` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_group_number(group: *const ifunc_group) -> u32 {
    enter_or(u32::MAX, || Ok(object!(group).0.number()))
}

/// Frees a group; targets keep what they joined with. Null: does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_group_destroy(group: *mut ifunc_group) {
    destroy!(group);
}

/// Makes a target a node of a group, and waits for links to the other nodes; they may all join at the same time. The group may be destroyed
/// afterwards. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_join(
    target: *mut ifunc_target,
    group: *const ifunc_group,
) -> ifunc_status {
    enter(|| {
        let (target, group) = (object!(target), object!(group));
        let nodes = target.exclusive()?.join(group.0.clone())?;
        target.set_nodes(nodes);
        Ok(ifunc_status::Ok)
    })
}

/// Adds a node to the group of a target that has joined, or says where a node listens that was restarted elsewhere. Any thread. Nothing may
/// be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_add_node(
    target: *const ifunc_target,
    number: u32,
    address: *const c_char,
) -> ifunc_status {
    enter(|| {
        let (target, address) = (object!(target), text!(address));
        target.nodes()?.add(number, address)?;
        Ok(ifunc_status::Ok)
    })
}

/// Makes a source that sends over the link to a node of the group. IFUNC_STATUS_PEER_GONE: there is no link to it now. The thread that
/// polls the target polls the link. Any thread. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_node_source(
    target: *const ifunc_target,
    number: u32,
    source: *mut *mut ifunc_source,
) -> ifunc_status {
    enter(|| {
        let out = out!(source);
        let source = object!(target).nodes()?.source(number).ok_or_else(|| {
            Fault::new(
                ifunc_status::PeerGone,
                format!("there is no link to node {number} now"),
            )
        })?;
        Ok(out.set(ifunc_source::new(source, &ifunc_rt::SourceOptions::default())))
    })
}
