//! The connections of an engine, by their numbers.
//!
//! A number is the index of a place, in bits 0–19, and above that how often the place was used. So a connection is found in one step, and what
//! comes late for one that is over finds none: a place rests until [`RESTING`] others are free, too, and has its number again after 4095 more
//! connections.

use std::collections::VecDeque;
use std::ops::Index;

use super::table::{Connection, ConnectionId};

/// Bits of a number that are the index of its place.
const INDEX_BITS: u32 = 20;
const INDEX: u32 = (1 << INDEX_BITS) - 1;
/// Most free places of which none is used again.
const RESTING: usize = 64;

/// The connections.
#[derive(Default)]
pub(super) struct Connections {
    places: Vec<Place>,
    /// Indices of the free ones, in the order in which they became free.
    free: VecDeque<u32>,
}

struct Place {
    /// Of its connection; of a free one, the next number.
    id: ConnectionId,
    connection: Option<Box<Connection>>,
}

impl Connections {
    /// A place for a connection, which is [inserted](Self::insert) under its number next.
    ///
    /// # Panics
    /// If there are 2^20 connections: files end before.
    pub(super) fn take_place(&mut self) -> ConnectionId {
        let free = (self.free.len() > RESTING).then(|| self.free.pop_front());
        if let Some(index) = free.flatten() {
            return self.places[index as usize].id;
        }
        let index = self.places.len() as u32;
        assert!(index <= INDEX, "too many connections of a worker");
        // 0 is no number.
        let id = ConnectionId(1 << INDEX_BITS | index);
        self.places.push(Place { id, connection: None });
        id
    }

    pub(super) fn insert(&mut self, id: ConnectionId, connection: Connection) {
        let place = &mut self.places[(id.0 & INDEX) as usize];
        debug_assert!(place.id == id && place.connection.is_none());
        place.connection = Some(Box::new(connection));
    }

    pub(super) fn remove(&mut self, id: &ConnectionId) -> Option<Box<Connection>> {
        let index = id.0 & INDEX;
        let place = self.places.get_mut(index as usize)?;
        let connection = place.connection.take_if(|_| place.id == *id)?;
        let uses = (id.0 >> INDEX_BITS).wrapping_add(1) & (u32::MAX >> INDEX_BITS);
        place.id = ConnectionId(uses.max(1) << INDEX_BITS | index);
        self.free.push_back(index);
        Some(connection)
    }

    #[inline]
    pub(super) fn get(&self, id: &ConnectionId) -> Option<&Connection> {
        let place = self.places.get((id.0 & INDEX) as usize)?;
        place.connection.as_deref().filter(|_| place.id == *id)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: &ConnectionId) -> Option<&mut Connection> {
        let place = self.places.get_mut((id.0 & INDEX) as usize)?;
        let is_its = place.id == *id;
        place.connection.as_deref_mut().filter(|_| is_its)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        let places = self.places.iter();
        places.filter_map(|place| Some((place.id, place.connection.as_deref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ConnectionId, &mut Connection)> {
        let places = self.places.iter_mut();
        places.filter_map(|place| Some((place.id, place.connection.as_deref_mut()?)))
    }

    pub(super) fn ids(&self) -> Vec<ConnectionId> {
        self.iter().map(|(id, _)| id).collect()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Connection> {
        self.iter().map(|(_, connection)| connection)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.values().next().is_none()
    }
}

impl Index<&ConnectionId> for Connections {
    type Output = Connection;

    fn index(&self, id: &ConnectionId) -> &Connection {
        self.get(id).expect("there is such a connection")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(connections: &mut Connections) -> ConnectionId {
        let id = connections.take_place();
        connections.insert(id, Connection::default());
        id
    }

    #[test]
    fn a_number_is_one_connections_alone() {
        let mut connections = Connections::default();
        let ids = [(); 3].map(|()| add(&mut connections));
        assert_eq!(connections.ids(), ids);
        assert!(ids.iter().all(|id| id.0 != 0 && connections.get(id).is_some()));
        assert!(connections.remove(&ids[1]).is_some() && connections.remove(&ids[1]).is_none());
        assert!(connections.get(&ids[1]).is_none() && connections.get_mut(&ids[1]).is_none());
        assert_eq!(connections.ids(), [ids[0], ids[2]]);
        // Numbers that nobody has, a peer's among them.
        for number in [0, 1, 3, INDEX, u32::MAX, ids[0].0 + (1 << INDEX_BITS)] {
            assert!(connections.get(&ConnectionId(number)).is_none(), "{number:#x}");
        }
    }

    #[test]
    fn a_number_comes_again_late() {
        let mut connections = Connections::default();
        let kept = add(&mut connections);
        let mut last = std::collections::HashMap::new();
        for n in 0..RESTING * 10_000 {
            let id = add(&mut connections);
            if let Some(before) = last.insert(id, n) {
                assert!(n - before > RESTING * 4000, "after {} others", n - before);
            }
            connections.remove(&id).unwrap();
        }
        assert!(connections.places.len() <= RESTING + 2);
        assert_eq!(connections.ids(), [kept]);
    }
}
