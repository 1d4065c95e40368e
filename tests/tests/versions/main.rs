//! HAL versions across processes: devices in the form of 1.0, 1.1 and 1.2, served beside those of 1.3, and
//! applications that use the methods of those versions; and the page that says what answers each method.

mod corpus;
mod methods;
mod older_devices;
mod older_interfaces;
mod runtime;
