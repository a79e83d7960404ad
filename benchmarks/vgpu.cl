// The SGEMM of vgpu.cu in OpenCL, for another implementation on the same cores.
__kernel __attribute__((reqd_work_group_size(16, 16, 1)))
void sgemm(__global const float* a, __global const float* b, __global float* c, int n) {
    __local float left[16][64], right[16][64];
    const int x = get_local_id(0), y = get_local_id(1), t = 16 * y + x;
    const int first_row = 64 * get_group_id(1), first_column = 64 * get_group_id(0);
    __global const float* a_row = a + (first_row + t / 4) * n + t % 4 * 4;
    __global const float* b_row = b + t / 16 * n + first_column + t % 16 * 4;
    float sum[4][4] = {{0.0f}};
    for (int k = 0; k < n; k += 16) {
        const float4 av = vload4(0, a_row + k);
        left[t % 4 * 4 + 0][t / 4] = av.x;
        left[t % 4 * 4 + 1][t / 4] = av.y;
        left[t % 4 * 4 + 2][t / 4] = av.z;
        left[t % 4 * 4 + 3][t / 4] = av.w;
        vstore4(vload4(0, b_row + k * n), 0, &right[t / 16][t % 16 * 4]);
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (int j = 0; j < 16; j++) {
            float l[4], r[4];
            for (int i = 0; i < 4; i++) l[i] = left[j][4 * y + i], r[i] = right[j][4 * x + i];
            for (int i = 0; i < 4; i++)
                for (int m = 0; m < 4; m++) sum[i][m] = fma(l[i], r[m], sum[i][m]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (int i = 0; i < 4; i++)
        for (int m = 0; m < 4; m++) c[(first_row + 4 * y + i) * n + first_column + 4 * x + m] = sum[i][m];
}
