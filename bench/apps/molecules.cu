// Molecular dynamics of a Lennard-Jones liquid: thousands of time steps of a few microseconds, each of several small launches.  The
// time is that of launching, not of computing; every now and then the program waits for the energy.
//
// Units are those of the potential (its depth, its distance of zero energy, the mass of a particle).  The size is the edge of the
// periodic box in cells of the face-centred cubic lattice that the particles start from, four particles a cell.
#include "app.h"

#include <utility>

constexpr float CUTOFF = 2.5f, TIME_STEP = 0.004f, DENSITY = 0.8442f, TEMPERATURE = 1.44f;
constexpr int ROOM = 48;               // particles that a cell of the list has room for; some 13 are in it
constexpr int STEPS_BETWEEN_ENERGIES = 50;
constexpr int THREADS = 64;            // of a block

// The periodic box, and the cubic cells, not smaller than the cutoff, by which neighbours are found.
struct Box {
    float edge;
    int cells;  // along an edge

    __device__ int cell_of(float coordinate) const { return min(int(coordinate / edge * cells), cells - 1); }
    __device__ int index(int x, int y, int z) const {
        return ((z + cells) % cells * cells + (y + cells) % cells) * cells + (x + cells) % cells;
    }
    // The shortest of the distances to all periodic images.
    __host__ __device__ float nearest(float distance) const { return distance - edge * rintf(distance / edge); }
    __host__ __device__ float wrapped(float coordinate) const { return coordinate - edge * floorf(coordinate / edge); }
};

// Sums over all particles.
struct Energy {
    double potential, kinetic;
    int overflow;  // whether a cell had no room for a particle
    double total() const { return potential + kinetic; }
};

// The force of a pair divided by its distance, and its energy, which is 0 at the cutoff.
__host__ __device__ inline float pair_force(float square, float *energy) {
    const float inverse = 1 / square, sixth = inverse * inverse * inverse;
    const float at_cutoff = 1 / (CUTOFF * CUTOFF * CUTOFF * CUTOFF * CUTOFF * CUTOFF);
    *energy = 4 * (sixth * sixth - sixth) - 4 * (at_cutoff * at_cutoff - at_cutoff);
    return 24 * inverse * (2 * sixth * sixth - sixth);
}

// The first half of a velocity Verlet step: half a step for the velocities, a step for the positions.
__global__ void advance(int count, Box box, float4 *position, float4 *velocity, const float4 *force) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float4 p = position[i], v = velocity[i], f = force[i];
    v.x += f.x * TIME_STEP / 2, v.y += f.y * TIME_STEP / 2, v.z += f.z * TIME_STEP / 2;
    p.x = box.wrapped(p.x + v.x * TIME_STEP), p.y = box.wrapped(p.y + v.y * TIME_STEP), p.z = box.wrapped(p.z + v.z * TIME_STEP);
    velocity[i] = v;
    position[i] = p;
}

// Puts each particle into the list of its cell.  `occupied` counts the particles of each cell and begins with zeros.
__global__ void sort_into_cells(int count, Box box, const float4 *position, int *occupied, float4 *cells, Energy *energy) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float4 p = position[i];
    int cell = box.index(box.cell_of(p.x), box.cell_of(p.y), box.cell_of(p.z));
    int place = atomicAdd(&occupied[cell], 1);
    if (place < ROOM) cells[cell * ROOM + place] = make_float4(p.x, p.y, p.z, __int_as_float(i));
    else energy->overflow = 1;
}

// The force on each particle, from those in its cell and the 26 around it; w is half the energy of its pairs.
__global__ void compute_forces(int count, Box box, const float4 *position, const int *occupied, const float4 *cells, float4 *force) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float4 p = position[i], sum = make_float4(0, 0, 0, 0);
    int x = box.cell_of(p.x), y = box.cell_of(p.y), z = box.cell_of(p.z);
    for (int neighbour = 0; neighbour < 27; neighbour++) {
        int cell = box.index(x + neighbour % 3 - 1, y + neighbour / 3 % 3 - 1, z + neighbour / 9 - 1);
        int last = min(occupied[cell], ROOM);
        for (int place = 0; place < last; place++) {
            float4 other = cells[cell * ROOM + place];
            float dx = box.nearest(p.x - other.x), dy = box.nearest(p.y - other.y), dz = box.nearest(p.z - other.z);
            float square = dx * dx + dy * dy + dz * dz, energy;
            if (square >= CUTOFF * CUTOFF || __float_as_int(other.w) == i) continue;
            float strength = pair_force(square, &energy);
            sum.x += strength * dx, sum.y += strength * dy, sum.z += strength * dz, sum.w += energy / 2;
        }
    }
    force[i] = sum;
}

// The second half of a velocity Verlet step.
__global__ void finish_step(int count, float4 *velocity, const float4 *force) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float4 v = velocity[i], f = force[i];
    v.x += f.x * TIME_STEP / 2, v.y += f.y * TIME_STEP / 2, v.z += f.z * TIME_STEP / 2;
    velocity[i] = v;
}

// Adds up the energy of all particles; it begins with zeros.
__global__ void add_energies(int count, const float4 *velocity, const float4 *force, Energy *energy) {
    __shared__ double potential[THREADS], kinetic[THREADS];
    int i = blockIdx.x * blockDim.x + threadIdx.x, me = threadIdx.x;
    float4 v = i < count ? velocity[i] : make_float4(0, 0, 0, 0);
    potential[me] = i < count ? force[i].w : 0;
    kinetic[me] = (v.x * v.x + v.y * v.y + v.z * v.z) / 2;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (me < half) potential[me] += potential[me + half], kinetic[me] += kinetic[me + half];
    }
    if (me == 0) {
        atomicAdd(&energy->potential, potential[0]);
        atomicAdd(&energy->kinetic, kinetic[0]);
    }
}

class Liquid {
  public:
    explicit Liquid(int edge)
        : count(4 * edge * edge * edge), box{edge * cbrtf(4 / DENSITY), int(edge * cbrtf(4 / DENSITY) / CUTOFF)}, position(count),
          velocity(count), force(count), cells(size_t(box.cells) * box.cells * box.cells * ROOM),
          occupied(size_t(box.cells) * box.cells * box.cells), energy(1) {
        REQUIRE(box.cells >= 3, "size %d: the box is smaller than three cutoffs; the smallest size is 5", edge);
        make_start(edge);
    }

    // Runs the liquid from its start, and returns its energy at the first and at the last step.
    std::pair<Energy, Energy> run(int steps) {
        const size_t bytes = count * sizeof(float4);
        CHECK(cudaMemcpy(position, start_position.data(), bytes, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(velocity, start_velocity.data(), bytes, cudaMemcpyHostToDevice));
        CHECK(cudaMemsetAsync(energy, 0, sizeof(Energy)));
        find_forces();
        Energy first = read_energy(), last = first;
        const int blocks = (count + THREADS - 1) / THREADS;
        for (int step = 1; step <= steps; step++) {
            advance<<<blocks, THREADS>>>(count, box, position, velocity, force);
            find_forces();
            finish_step<<<blocks, THREADS>>>(count, velocity, force);
            if (step % STEPS_BETWEEN_ENERGIES == 0 || step == steps) last = read_energy();
        }
        end_position.resize(count), end_force.resize(count);
        CHECK(cudaMemcpy(end_position.data(), position, bytes, cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpy(end_force.data(), force, bytes, cudaMemcpyDeviceToHost));
        return {first, last};
    }

    // Checks the energy, which must stay what it is, and the last forces of some particles, against all pairs on the CPU.
    void check(int size, const Energy &first, const Energy &last) const {
        // The potential ends abruptly at the cutoff and the time steps are finite, so energy is kept to some 1e-4 of its parts.
        double parts = fabs(first.potential) + first.kinetic, change = last.total() - first.total();
        REQUIRE(fabs(change) <= 1e-3 * parts, "size %d: the energy went from %g to %g", size, first.total(), last.total());
        REQUIRE(fabs(last.kinetic - first.kinetic) > 1e-2 * parts, "size %d: nothing has moved: the kinetic energy is still %g", size,
                last.kinetic);
        for (int sample = 0; sample < 20; sample++) {
            int i = int((random_value(sample) + 1) / 2 * count);
            double want[3] = {0, 0, 0}, scale = 1;
            float4 p = end_position[i], got = end_force[i];
            for (int j = 0; j < count; j++) {
                float4 other = end_position[j];
                float dx = box.nearest(p.x - other.x), dy = box.nearest(p.y - other.y), dz = box.nearest(p.z - other.z);
                float square = dx * dx + dy * dy + dz * dz, ignored;
                if (j == i || square >= CUTOFF * CUTOFF) continue;
                float strength = pair_force(square, &ignored);
                want[0] += strength * dx, want[1] += strength * dy, want[2] += strength * dz;
                scale += fabs(strength) * sqrt(square);
            }
            double error = fabs(got.x - want[0]) + fabs(got.y - want[1]) + fabs(got.z - want[2]);
            REQUIRE(error <= 1e-5 * scale, "size %d: the force on particle %d should be (%g, %g, %g), came out as (%g, %g, %g)", size, i,
                    want[0], want[1], want[2], got.x, got.y, got.z);
        }
    }

  private:
    // The lattice, and random velocities of the given temperature that together rest.
    void make_start(int edge) {
        const float spacing = box.edge / edge;
        const float corners[4][3] = {{0.25f, 0.25f, 0.25f}, {0.75f, 0.75f, 0.25f}, {0.75f, 0.25f, 0.75f}, {0.25f, 0.75f, 0.75f}};
        for (int cell = 0; cell < edge * edge * edge; cell++)
            for (const float *corner : corners) {
                float x = cell % edge + corner[0], y = cell / edge % edge + corner[1], z = cell / edge / edge + corner[2];
                start_position.push_back(make_float4(x * spacing, y * spacing, z * spacing, 0));
            }
        float4 mean = make_float4(0, 0, 0, 0);
        for (int i = 0; i < count; i++) {
            float4 v = make_float4(random_value(3 * i), random_value(3 * i + 1), random_value(3 * i + 2), 0);
            mean.x += v.x / count, mean.y += v.y / count, mean.z += v.z / count;
            start_velocity.push_back(v);
        }
        double squares = 0;
        for (float4 &v : start_velocity) {
            v.x -= mean.x, v.y -= mean.y, v.z -= mean.z;
            squares += v.x * v.x + v.y * v.y + v.z * v.z;
        }
        const float factor = sqrt(3 * TEMPERATURE * count / squares);
        for (float4 &v : start_velocity) v.x *= factor, v.y *= factor, v.z *= factor;
    }

    void find_forces() {
        const int blocks = (count + THREADS - 1) / THREADS;
        CHECK(cudaMemsetAsync(occupied, 0, size_t(box.cells) * box.cells * box.cells * sizeof(int)));
        sort_into_cells<<<blocks, THREADS>>>(count, box, position, occupied, cells, energy);
        compute_forces<<<blocks, THREADS>>>(count, box, position, occupied, cells, force);
        CHECK(cudaGetLastError());
    }

    Energy read_energy() {
        Energy sums;
        add_energies<<<(count + THREADS - 1) / THREADS, THREADS>>>(count, velocity, force, energy);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(&sums, energy, sizeof(Energy), cudaMemcpyDeviceToHost));
        REQUIRE(!sums.overflow, "more than %d particles came together in one cell", ROOM);
        CHECK(cudaMemsetAsync(energy, 0, sizeof(Energy)));
        return sums;
    }

    int count;
    Box box;
    DeviceArray<float4> position, velocity, force, cells;
    DeviceArray<int> occupied;
    DeviceArray<Energy> energy;
    std::vector<float4> start_position, start_velocity, end_position, end_force;
};

int main(int argument_count, char **words) {
    Arguments arguments(argument_count, words, {{"sizes", "8,12,16,20"}, {"repetitions", "5"}, {"steps", "1000"}});
    const int steps = arguments.number("steps");
    double start = now();
    CHECK(cudaFree(nullptr));
    double context = now() - start;

    for (int size : arguments.numbers("sizes")) {
        start = now();
        Liquid liquid(size);
        double setup = context + now() - start;
        std::pair<Energy, Energy> energies;
        auto nothing = [] {};
        Timing timing = measure(arguments.number("repetitions"), nothing, [&] { energies = liquid.run(steps); });
        liquid.check(size, energies.first, energies.second);
        print_result(size, timing, setup, energies.second.total());
    }
    return 0;
}
