//! The connections of an engine, by their ids.
//!
//! An id has the index of an element of the table in bits 0–31, which is found in one step, and above that how many connections the engine has had.
//! So an element is used again at once, and what comes late for a connection that is over finds none.

use std::ops::Index;

use super::table::{Connection, ConnectionId};

/// Connections that an engine counts before it begins again: the last bit of a [`Key`](crate::transport::Key) is not theirs.
const MOST: u32 = u32::MAX >> 1;

/// The connections of an engine.
#[derive(Default)]
pub(super) struct ConnectionTable {
    elements: Vec<Element>,
    /// Indices of free elements; some were used since, or are past the end.
    free: Vec<u32>,
    /// The number of the last connection.
    last: u32,
}

struct Element {
    /// The id of its connection, or of the last one.
    id: ConnectionId,
    connection: Option<Box<Connection>>,
}

impl ConnectionTable {
    /// The id of the next connection, whose element is kept for it until it is [inserted](Self::insert).
    pub(super) fn next_id(&mut self) -> ConnectionId {
        self.last = self.last % MOST + 1;
        let is_free = |index: &u32| {
            let element = self.elements.get(*index as usize);
            element.is_some_and(|element| element.connection.is_none())
        };
        let index = std::iter::from_fn(|| self.free.pop()).find(is_free);
        let index = index.unwrap_or(self.elements.len() as u32);
        let id = ConnectionId(u64::from(self.last) << u32::BITS | u64::from(index));
        if index as usize == self.elements.len() {
            self.elements.push(Element { id, connection: None });
        }
        self.elements[index as usize].id = id;
        id
    }

    /// Adds the connection with the [next id](Self::next_id).
    pub(super) fn insert(&mut self, id: ConnectionId, connection: Connection) {
        let element = &mut self.elements[id.index()];
        debug_assert!(element.id == id && element.connection.is_none());
        element.connection = Some(Box::new(connection));
    }

    pub(super) fn remove(&mut self, id: &ConnectionId) -> Option<Box<Connection>> {
        let element = self.elements.get_mut(id.index())?;
        let connection = element.connection.take_if(|_| element.id == *id)?;
        self.free.push(id.index() as u32);
        // What looks at all connections does not look at more than there were at once of late.
        while self
            .elements
            .pop_if(|element| element.connection.is_none())
            .is_some()
        {}
        if self.elements.is_empty() {
            self.free.clear();
        }
        Some(connection)
    }

    /// The connection at this index, whatever its id is.
    #[inline]
    pub(super) fn at_mut(&mut self, index: u32) -> Option<(ConnectionId, &mut Connection)> {
        let element = self.elements.get_mut(index as usize)?;
        Some((element.id, element.connection.as_deref_mut()?))
    }

    #[inline]
    pub(super) fn get(&self, id: &ConnectionId) -> Option<&Connection> {
        let element = self.elements.get(id.index())?;
        element.connection.as_deref().filter(|_| element.id == *id)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: &ConnectionId) -> Option<&mut Connection> {
        let element = self.elements.get_mut(id.index())?;
        let is_its = element.id == *id;
        element.connection.as_deref_mut().filter(|_| is_its)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        let elements = self.elements.iter();
        elements.filter_map(|element| Some((element.id, element.connection.as_deref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ConnectionId, &mut Connection)> {
        let elements = self.elements.iter_mut();
        elements.filter_map(|element| Some((element.id, element.connection.as_deref_mut()?)))
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

impl Index<&ConnectionId> for ConnectionTable {
    type Output = Connection;

    fn index(&self, id: &ConnectionId) -> &Connection {
        self.get(id).expect("there is such a connection")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(table: &mut ConnectionTable) -> ConnectionId {
        let id = table.next_id();
        table.insert(id, Connection::default());
        id
    }

    #[test]
    fn an_id_is_one_connections_alone() {
        let mut table = ConnectionTable::default();
        let ids = [(); 3].map(|()| add(&mut table));
        assert_eq!(table.ids(), ids);
        assert!(ids.iter().all(|id| id.0 != 0 && table.get(id).is_some()));
        assert!(table.remove(&ids[1]).is_some() && table.remove(&ids[1]).is_none());
        assert!(table.get(&ids[1]).is_none() && table.get_mut(&ids[1]).is_none());
        assert!(table.at_mut(1).is_none());
        let again = add(&mut table);
        assert_eq!((again.index(), table.ids()), (1, vec![ids[0], again, ids[2]]));
        assert!(again != ids[1] && table.get(&ids[1]).is_none());
        assert_eq!(table.at_mut(1).map(|(id, _)| id), Some(again));
        for id in [0, 1, 3, u64::MAX, ids[0].0 + (9 << u32::BITS)] {
            assert!(table.get(&ConnectionId(id)).is_none(), "{id:#x}");
        }
        assert!(table.at_mut(3).is_none() && table.at_mut(u32::MAX).is_none());
    }

    #[test]
    fn the_table_is_as_long_as_what_is_in_it() {
        let mut table = ConnectionTable::default();
        let ids = [(); 100].map(|()| add(&mut table));
        for id in &ids[1..] {
            assert!(table.remove(id).is_some());
        }
        assert_eq!(table.elements.len(), 1);
        // Nothing is lost, and nothing is used twice.
        let more = [(); 100].map(|()| add(&mut table));
        assert_eq!(table.elements.len(), 101);
        assert!(more.iter().all(|id| table.get(id).is_some()));
        table.remove(&ids[0]);
        assert_eq!(table.ids().len(), 100);
        for id in &more {
            assert!(table.remove(id).is_some());
        }
        assert!(table.is_empty() && table.elements.is_empty() && table.free.is_empty());
    }

    #[test]
    fn the_count_of_connections_begins_again() {
        let mut table = ConnectionTable {
            last: MOST - 1,
            ..ConnectionTable::default()
        };
        let [last, first] = [(); 2].map(|()| add(&mut table).0 >> u32::BITS);
        assert_eq!([last, first], [MOST.into(), 1]);
    }
}
