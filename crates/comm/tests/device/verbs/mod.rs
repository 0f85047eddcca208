//! Do kernels write the work requests of a network card as its own driver does?

mod golden;
