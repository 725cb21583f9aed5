//! A queue whose first element is found in one step.

use std::collections::VecDeque;

/// A queue. Its first element lies apart: where a deque begins takes several instructions to compute, and most targets poll one
/// connection.
#[derive(Debug)]
pub(super) struct Rotation<T> {
    /// `None`: the queue is empty.
    first: Option<T>,
    others: VecDeque<T>,
}

impl<T> Rotation<T> {
    pub(super) fn new() -> Self {
        Self {
            first: None,
            others: VecDeque::new(),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    /// The element, if there is exactly one.
    #[inline]
    pub(super) fn only_mut(&mut self) -> Option<&mut T> {
        self.first.as_mut().filter(|_| self.others.is_empty())
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        match at.checked_sub(1) {
            None => self.first.as_mut(),
            Some(at) => self.others.get_mut(at),
        }
    }

    pub(super) fn push_back(&mut self, element: T) {
        match &self.first {
            None => self.first = Some(element),
            Some(_) => self.others.push_back(element),
        }
    }

    pub(super) fn pop_front(&mut self) -> Option<T> {
        std::mem::replace(&mut self.first, self.others.pop_front())
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<T> {
        match at.checked_sub(1) {
            None => self.pop_front(),
            Some(at) => self.others.remove(at),
        }
    }

    /// Moves the first element behind the others.
    pub(super) fn rotate(&mut self) {
        if let Some(first) = self.pop_front() {
            self.push_back(first);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.others)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.first.iter_mut().chain(&mut self.others)
    }
}

impl<T> Extend<T> for Rotation<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        elements.into_iter().for_each(|element| self.push_back(element));
    }
}

#[cfg(test)]
mod tests {
    use super::Rotation;

    #[test]
    fn it_is_a_queue() {
        let mut queue = Rotation::new();
        assert!(queue.only_mut().is_none() && queue.pop_front().is_none());
        queue.extend([1, 2, 3]);
        assert!(queue.only_mut().is_none());
        queue.rotate();
        let all = |queue: &Rotation<i32>| queue.iter().copied().collect::<Vec<_>>();
        assert_eq!((all(&queue), queue.len()), (vec![2, 3, 1], 3));
        assert_eq!(
            [0, 1, 2, 3].map(|at| queue.get_mut(at).copied()),
            [Some(2), Some(3), Some(1), None]
        );
        queue.iter_mut().for_each(|element| *element *= 10);
        assert_eq!([1, 0, 1].map(|at| queue.remove(at)), [Some(30), Some(20), None]);
        assert_eq!(queue.only_mut(), Some(&mut 10));
        assert_eq!((queue.pop_front(), queue.len()), (Some(10), 0));
    }
}
