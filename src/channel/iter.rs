//! Iterators over what a receiver receives.

/// Makes the types `Iter`, `TryIter` and `IntoIter` of a module's `Receiver<T>`, which receive as the two
/// expressions do: the second without waiting. `T` stands in brackets, with its bound for iterating.
macro_rules! iterators {
    (
        [$($param:tt)*], $item:ty,
        |$receiver:ident| $wait:expr, $try:expr,
        $(#[$into_iter:meta])*
    ) => {
        /// Iterator over the messages of a channel, made by [`Receiver::iter`].
        pub struct Iter<'a, T> {
            receiver: &'a Receiver<T>,
        }

        /// Iterator over the messages that can be received without waiting, made by
        /// [`Receiver::try_iter`].
        pub struct TryIter<'a, T> {
            receiver: &'a Receiver<T>,
        }

        /// Iterator over the messages of a channel that owns the receiver. Otherwise as
        /// [`Receiver::iter`].
        $(#[$into_iter])*
        pub struct IntoIter<T> {
            receiver: Receiver<T>,
        }

        impl<$($param)*> Iterator for Iter<'_, T> {
            type Item = $item;

            fn next(&mut self) -> Option<$item> {
                let $receiver = self.receiver;
                $wait
            }
        }

        impl<$($param)*> Iterator for TryIter<'_, T> {
            type Item = $item;

            fn next(&mut self) -> Option<$item> {
                let $receiver = self.receiver;
                $try
            }
        }

        impl<$($param)*> Iterator for IntoIter<T> {
            type Item = $item;

            fn next(&mut self) -> Option<$item> {
                let $receiver = &self.receiver;
                $wait
            }
        }

        impl<$($param)*> std::iter::FusedIterator for Iter<'_, T> {}
        impl<$($param)*> std::iter::FusedIterator for IntoIter<T> {}

        impl<'a, $($param)*> IntoIterator for &'a Receiver<T> {
            type Item = $item;
            type IntoIter = Iter<'a, T>;

            fn into_iter(self) -> Iter<'a, T> {
                self.iter()
            }
        }

        impl<$($param)*> IntoIterator for Receiver<T> {
            type Item = $item;
            type IntoIter = IntoIter<T>;

            fn into_iter(self) -> IntoIter<T> {
                IntoIter { receiver: self }
            }
        }

        windlass_ground::std_traits::fmt_as!([T] Debug for Iter<'_, T>, "Iter { .. }");
        windlass_ground::std_traits::fmt_as!([T] Debug for TryIter<'_, T>, "TryIter { .. }");
        windlass_ground::std_traits::fmt_as!([T] Debug for IntoIter<T>, "IntoIter { .. }");
    };
}
pub(super) use iterators;
