//! A list whose busy elements come first.

/// Elements, of which those that are busy are looked at more often than the others.
#[derive(Debug)]
pub(super) struct MoveToFront<T> {
    elements: Vec<T>,
    busy: usize,
    /// Which of those that are busy, and of the others, is the next to look at.
    next_busy: usize,
    next_other: usize,
}

impl<T> MoveToFront<T> {
    pub(super) fn new() -> MoveToFront<T> {
        MoveToFront {
            elements: Vec::new(),
            busy: 0,
            next_busy: 0,
            next_other: 0,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// How many are busy.
    #[inline]
    pub(super) fn busy(&self) -> usize {
        self.busy
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.elements.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.elements.iter_mut()
    }

    /// Those that are busy.
    pub(super) fn busy_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.elements.iter_mut().take(self.busy)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.elements.get_mut(at)
    }

    /// Adds one that is busy.
    pub(super) fn push_busy(&mut self, element: T) {
        self.elements.push(element);
        self.make_busy(self.elements.len() - 1);
    }

    /// Takes one out. Another may be where it was.
    pub(super) fn remove(&mut self, at: usize) -> T {
        let at = self.make_idle(at);
        self.elements.swap_remove(at)
    }

    /// Has one be busy; returns where it is now.
    pub(super) fn make_busy(&mut self, at: usize) -> usize {
        if at < self.busy {
            return at;
        }
        self.elements.swap(at, self.busy);
        self.busy += 1;
        self.busy - 1
    }

    /// Has one be busy no more; returns where it is now.
    pub(super) fn make_idle(&mut self, at: usize) -> usize {
        if at >= self.busy {
            return at;
        }
        self.busy -= 1;
        self.elements.swap(at, self.busy);
        self.busy
    }

    /// Looks at each; takes out those that are gone, and returns them.
    pub(super) fn take_out(&mut self, mut is_gone: impl FnMut(&mut T) -> bool) -> Vec<T> {
        let mut gone = Vec::new();
        // Upwards, so that what comes to a place has been looked at or is looked at there.
        let mut at = 0;
        while let Some(element) = self.elements.get_mut(at) {
            if is_gone(element) {
                gone.push(self.remove(at));
            } else {
                at += 1;
            }
        }
        gone
    }

    /// One of those that are busy after the other, and where it is.
    #[inline]
    pub(super) fn next_busy(&mut self) -> Option<(usize, &mut T)> {
        if self.busy == 0 {
            return None;
        }
        let at = if self.next_busy < self.busy {
            self.next_busy
        } else {
            0
        };
        self.next_busy = at + 1;
        Some((at, self.elements.get_mut(at)?))
    }

    /// Whether not all are busy.
    #[inline]
    pub(super) fn has_others(&self) -> bool {
        self.busy < self.elements.len()
    }

    /// One of the others after the other, and where it is.
    #[inline]
    pub(super) fn next_other(&mut self) -> Option<(usize, &mut T)> {
        let others = self.busy..self.elements.len();
        let at = if others.contains(&self.next_other) {
            self.next_other
        } else {
            self.busy
        };
        self.next_other = at + 1;
        Some((at, self.elements.get_mut(at)?))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push,
        Remove(usize),
        MakeBusy(usize),
        MakeIdle(usize),
        NextBusy,
        NextOther,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            Just(Step::Push),
            any::<usize>().prop_map(Step::Remove),
            any::<usize>().prop_map(Step::MakeBusy),
            any::<usize>().prop_map(Step::MakeIdle),
            Just(Step::NextBusy),
            Just(Step::NextOther),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn elements_are_busy_as_they_were_told(steps in steps()) {
            let mut list = MoveToFront::new();
            let (mut busy, mut others) = (BTreeSet::new(), BTreeSet::new());
            for (number, step) in steps.into_iter().enumerate() {
                let length = list.iter().count();
                let pick = |at: usize| (length > 0).then(|| at % length);
                match step {
                    Step::Push => {
                        list.push_busy(number);
                        busy.insert(number);
                    }
                    Step::Remove(at) => if let Some(at) = pick(at) {
                        let gone = list.remove(at);
                        prop_assert!(busy.remove(&gone) || others.remove(&gone));
                    },
                    Step::MakeBusy(at) => if let Some(at) = pick(at) {
                        let element = *list.get_mut(at).unwrap();
                        let at = list.make_busy(at);
                        prop_assert_eq!(*list.get_mut(at).unwrap(), element);
                        others.remove(&element);
                        busy.insert(element);
                    },
                    Step::MakeIdle(at) => if let Some(at) = pick(at) {
                        let element = *list.get_mut(at).unwrap();
                        let at = list.make_idle(at);
                        prop_assert_eq!(*list.get_mut(at).unwrap(), element);
                        busy.remove(&element);
                        others.insert(element);
                    },
                    Step::NextBusy => {
                        let next = list.next_busy().map(|(at, element)| (at, *element));
                        prop_assert_eq!(next.is_some(), !busy.is_empty());
                        if let Some((at, element)) = next {
                            prop_assert!(busy.contains(&element));
                            prop_assert_eq!(*list.get_mut(at).unwrap(), element);
                        }
                    }
                    Step::NextOther => {
                        let next = list.next_other().map(|(_, element)| *element);
                        prop_assert_eq!(next.is_some(), !others.is_empty());
                        prop_assert!(next.is_none_or(|element| others.contains(&element)));
                    }
                }
                prop_assert_eq!(list.busy(), busy.len());
                let first: BTreeSet<usize> = list.busy_mut().map(|element| *element).collect();
                prop_assert_eq!(&first, &busy);
                prop_assert_eq!(list.iter().count(), busy.len() + others.len());
            }
        }
    }

    proptest! {
        #[test]
        fn those_that_are_gone_are_taken_out_and_nobody_is_left_out(
            elements in proptest::collection::vec(any::<(bool, bool)>(), 0..40),
        ) {
            let mut list = MoveToFront::new();
            // By number: whether it is busy, and whether it is gone.
            for number in 0..elements.len() {
                list.push_busy(number);
            }
            for (number, (is_busy, _)) in elements.iter().enumerate() {
                let at = list.iter().position(|element| *element == number).unwrap();
                if !is_busy {
                    list.make_idle(at);
                }
            }
            let mut seen = BTreeSet::new();
            let gone: BTreeSet<usize> = list
                .take_out(|number| {
                    seen.insert(*number);
                    elements[*number].1
                })
                .into_iter()
                .collect();
            prop_assert_eq!(seen.len(), elements.len());
            let of = |wanted: &dyn Fn((bool, bool)) -> bool| -> BTreeSet<usize> {
                (0..elements.len()).filter(|number| wanted(elements[*number])).collect()
            };
            prop_assert_eq!(gone, of(&|(_, is_gone)| is_gone));
            let busy: BTreeSet<usize> = list.busy_mut().map(|number| *number).collect();
            prop_assert_eq!(busy, of(&|(is_busy, is_gone)| is_busy && !is_gone));
        }
    }

    #[test]
    fn each_has_its_turn() {
        let mut list = MoveToFront::new();
        (0..6).for_each(|number| list.push_busy(number));
        for _ in 0..3 {
            list.make_idle(1);
        }
        let busy: BTreeSet<i32> = (0..3).map(|_| *list.next_busy().unwrap().1).collect();
        let others: BTreeSet<i32> = (0..3).map(|_| *list.next_other().unwrap().1).collect();
        assert_eq!((busy.len(), others.len()), (3, 3));
        assert!(busy.is_disjoint(&others));
    }
}
