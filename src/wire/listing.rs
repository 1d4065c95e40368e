//! The macros by which types list what they consist of.

/// Lists the fields of structures in the order in which they travel:
/// `Name { field: Type, later: Type = since 3 }`.
///
/// A field is never moved, removed or given another type. New ones come last, with the version of the
/// protocol that brings them. To peers of an earlier version they are not sent, and read from such a peer
/// they have their default.
#[macro_export]
macro_rules! wire_record {
    ($($name:ident { $($field:ident: $ty:ty $(= since $since:literal)?),* $(,)? })*) => {$(
        impl $crate::wire::Wire for $name {
            const LEAST: usize = 0 $(+ $crate::wire_record!(@least $ty $(, $since)?))*;

            fn put(
                &self,
                to: &mut $crate::wire::codec::Writer<'_>,
            ) -> ::std::result::Result<(), $crate::wire::codec::CodecError> {
                let Self { $($field),* } = self;
                $($crate::wire_record!(@put $field, to $(, $since)?);)*
                Ok(())
            }

            fn get(
                from: &mut $crate::wire::codec::Reader<'_>,
            ) -> ::std::result::Result<Self, $crate::wire::codec::CodecError> {
                $(let $field = $crate::wire_record!(@get $ty, from $(, $since)?);)*
                Ok(Self { $($field),* })
            }

            fn describe(types: &mut $crate::wire::Types) -> String {
                types.enter(stringify!($name), |types| {
                    let fields = vec![$($crate::wire::Field {
                        name: stringify!($field),
                        ty: <$ty as $crate::wire::Wire>::describe(types),
                        since: $crate::wire_record!(@since $($since)?),
                    }),*];
                    vec![$crate::wire::Variant { numbered: None, since: 1, fields }]
                })
            }
        }
    )*};
    (@since) => { 1 };
    (@since $since:literal) => { $since };
    (@least $ty:ty) => { <$ty as $crate::wire::Wire>::LEAST };
    (@least $ty:ty, $since:literal) => { 0 };
    (@put $field:ident, $to:ident) => { $crate::wire::Wire::put($field, $to)? };
    (@put $field:ident, $to:ident, $since:literal) => {
        if $to.version() >= $since {
            $crate::wire::Wire::put($field, $to)?;
        }
    };
    (@get $ty:ty, $from:ident) => { <$ty as $crate::wire::Wire>::get($from)? };
    (@get $ty:ty, $from:ident, $since:literal) => {
        if $from.version() >= $since {
            <$ty as $crate::wire::Wire>::get($from)?
        } else {
            <$ty as ::std::default::Default>::default()
        }
    };
}

/// Lists the numbers of an enumeration's variants, and what each brings:
/// `Name { 0 => One, 1 => Two { field: Type }, 2 => Three(value: Type), 3 since 3 => Four }`.
///
/// A number is never given to another variant. New ones come with the version of the protocol that brings
/// them, and are an error towards and from peers of an earlier version. A variant whose content grows holds a
/// structure.
#[macro_export]
macro_rules! wire_numbers {
    ($($name:ident { $(
        $number:literal $(since $since:literal)? => $variant:ident
        $({ $($field:ident: $ty:ty),* $(,)? })?
        $(($inner:ident: $inner_ty:ty))?
    ),* $(,)? })*) => {$(
        impl $crate::wire::Wire for $name {
            const LEAST: usize = 4;

            fn put(
                &self,
                to: &mut $crate::wire::codec::Writer<'_>,
            ) -> ::std::result::Result<(), $crate::wire::codec::CodecError> {
                match self {$(
                    Self::$variant $({ $($field),* })? $(($inner))? => {
                        const SINCE: u32 = $crate::wire_record!(@since $($since)?);
                        to.number($number, SINCE, concat!(stringify!($name), "::", stringify!($variant)))?;
                        $($(<$ty as $crate::wire::Wire>::put($field, to)?;)*)?
                        $(<$inner_ty as $crate::wire::Wire>::put($inner, to)?;)?
                    }
                )*}
                Ok(())
            }

            fn get(
                from: &mut $crate::wire::codec::Reader<'_>,
            ) -> ::std::result::Result<Self, $crate::wire::codec::CodecError> {
                match from.number()? {
                    $($number if from.version() >= $crate::wire_record!(@since $($since)?) => {
                        $($(let $field = <$ty as $crate::wire::Wire>::get(from)?;)*)?
                        $(let $inner = <$inner_ty as $crate::wire::Wire>::get(from)?;)?
                        Ok(Self::$variant $({ $($field),* })? $(($inner))?)
                    })*
                    number => Err($crate::wire::codec::CodecError::Number {
                        what: stringify!($name),
                        number,
                        version: from.version(),
                    }),
                }
            }

            fn describe(types: &mut $crate::wire::Types) -> String {
                types.enter(stringify!($name), |types| {
                    // Some have no fields.
                    let _ = &types;
                    vec![$($crate::wire::Variant {
                        numbered: Some(($number, stringify!($variant))),
                        since: $crate::wire_record!(@since $($since)?),
                        fields: vec![
                            $($($crate::wire::Field {
                                name: stringify!($field),
                                ty: <$ty as $crate::wire::Wire>::describe(types),
                                since: 1,
                            },)*)?
                            $($crate::wire::Field {
                                name: stringify!($inner),
                                ty: <$inner_ty as $crate::wire::Wire>::describe(types),
                                since: 1,
                            })?
                        ],
                    }),*]
                })
            }
        }
    )*};
}
