// Gravitation among all pairs of bodies, in tiles of shared memory, a few time steps of leapfrog.
#include "check.h"

#include <utility>
#include <vector>

constexpr int BODIES = 1024, BLOCK = 128, STEPS = 3;
constexpr float SOFTENING = 0.01f, TIME_STEP = 0.001f;

// A position's fourth component is the body's mass.
__global__ void step(const float4 *positions, float4 *new_positions, float4 *velocities) {
    __shared__ float4 tile[BLOCK];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    float4 own = positions[i];
    float3 acceleration = {0, 0, 0};
    for (int start = 0; start < BODIES; start += BLOCK) {
        tile[threadIdx.x] = positions[start + threadIdx.x];
        __syncthreads();
#pragma unroll 8
        for (int j = 0; j < BLOCK; j++) {
            float3 d = {tile[j].x - own.x, tile[j].y - own.y, tile[j].z - own.z};
            float inverse = rsqrtf(d.x * d.x + d.y * d.y + d.z * d.z + SOFTENING);
            float pull = tile[j].w * inverse * inverse * inverse;
            acceleration.x += pull * d.x;
            acceleration.y += pull * d.y;
            acceleration.z += pull * d.z;
        }
        __syncthreads();
    }
    float4 velocity = velocities[i];
    velocity.x += acceleration.x * TIME_STEP;
    velocity.y += acceleration.y * TIME_STEP;
    velocity.z += acceleration.z * TIME_STEP;
    velocities[i] = velocity;
    new_positions[i] = {own.x + velocity.x * TIME_STEP, own.y + velocity.y * TIME_STEP, own.z + velocity.z * TIME_STEP, own.w};
}

struct Body {
    double position[3], velocity[3], mass;
};

static void step_on_cpu(std::vector<Body> &bodies) {
    std::vector<Body> before = bodies;
    for (Body &body : bodies) {
        double acceleration[3] = {0, 0, 0};
        for (const Body &other : before) {
            double d[3], distance = SOFTENING;
            for (int axis = 0; axis < 3; axis++) {
                d[axis] = other.position[axis] - before[&body - bodies.data()].position[axis];
                distance += d[axis] * d[axis];
            }
            double pull = other.mass / (distance * sqrt(distance));
            for (int axis = 0; axis < 3; axis++) acceleration[axis] += pull * d[axis];
        }
        for (int axis = 0; axis < 3; axis++) {
            body.velocity[axis] += acceleration[axis] * TIME_STEP;
            body.position[axis] += body.velocity[axis] * TIME_STEP;
        }
    }
}

int main() {
    static_assert(BODIES % BLOCK == 0, "the tiles cover the bodies exactly");
    std::vector<float4> positions(BODIES), velocities(BODIES);
    std::vector<Body> bodies(BODIES);
    uint32_t state = 9;
    for (int i = 0; i < BODIES; i++) {
        float4 &p = positions[i], &v = velocities[i];
        p = {random_between(&state, -1, 1), random_between(&state, -1, 1), random_between(&state, -1, 1),
             random_between(&state, 0.5f, 1.5f)};
        v = {random_between(&state, -1, 1), random_between(&state, -1, 1), random_between(&state, -1, 1), 0};
        bodies[i] = {{p.x, p.y, p.z}, {v.x, v.y, v.z}, p.w};
    }

    const size_t bytes = BODIES * sizeof(float4);
    float4 *device_positions, *device_new, *device_velocities;
    CHECK_CUDA(cudaMalloc(&device_positions, bytes));
    CHECK_CUDA(cudaMalloc(&device_new, bytes));
    CHECK_CUDA(cudaMalloc(&device_velocities, bytes));
    CHECK_CUDA(cudaMemcpy(device_positions, positions.data(), bytes, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(device_velocities, velocities.data(), bytes, cudaMemcpyHostToDevice));
    for (int i = 0; i < STEPS; i++) {
        step<<<BODIES / BLOCK, BLOCK>>>(device_positions, device_new, device_velocities);
        CHECK_LAUNCH();
        std::swap(device_positions, device_new);
        step_on_cpu(bodies);
    }
    CHECK_CUDA(cudaMemcpy(positions.data(), device_positions, bytes, cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaMemcpy(velocities.data(), device_velocities, bytes, cudaMemcpyDeviceToHost));
    for (int i = 0; i < BODIES; i++) {
        const float position[3] = {positions[i].x, positions[i].y, positions[i].z};
        const float velocity[3] = {velocities[i].x, velocities[i].y, velocities[i].z};
        for (int axis = 0; axis < 3; axis++) {
            REQUIRE(is_close(position[axis], bodies[i].position[axis], 1e-5), "body %d, axis %d: position %g instead of %g", i,
                    axis, position[axis], bodies[i].position[axis]);
            REQUIRE(is_close(velocity[axis], bodies[i].velocity[axis], 1e-4), "body %d, axis %d: velocity %g instead of %g", i,
                    axis, velocity[axis], bodies[i].velocity[axis]);
        }
    }
    CHECK_CUDA(cudaFree(device_positions));
    CHECK_CUDA(cudaFree(device_new));
    CHECK_CUDA(cudaFree(device_velocities));
    return pass();
}
