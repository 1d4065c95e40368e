// The cases N001 and N010 to N036 of the NDK's own tests: models and compilations.
#define _GNU_SOURCE

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support.h"

#define TENSOR ANEURALNETWORKS_TENSOR_FLOAT32

static ANeuralNetworksMemory* new_memory(size_t size) {
    ANeuralNetworksMemory* memory = NULL;
    int fd = memfd_create("test", MFD_CLOEXEC);
    EXPECT_TRUE(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    OK(ANeuralNetworksMemory_createFromFd(size, PROT_READ | PROT_WRITE, fd, 0, &memory));
    close(fd);
    return memory;
}

// NULL for an object or a place to write to.
static void n001(void) {
    ANeuralNetworksModel* model = unfinished_add();
    ANeuralNetworksModel* whole = add_model();
    ANeuralNetworksCompilation* compilation = finished(new_compilation(whole));
    ANeuralNetworksExecution* execution = new_execution(compilation);
    ANeuralNetworksBurst* burst = NULL;
    ANeuralNetworksMemory* memory = new_memory(16);
    ANeuralNetworksMemoryDesc* desc = NULL;
    const ANeuralNetworksDevice* device = test_device();
    ANeuralNetworksDevice* some_device = NULL;
    ANeuralNetworksEvent* event = NULL;
    ANeuralNetworksOperandType type = type_of(TENSOR, 1, FOUR, 0, 0);
    const char* text = NULL;
    uint8_t token[32] = {0};
    uint32_t number = 0;
    int32_t code = 0;
    int64_t level = 0;
    uint64_t duration = 0;
    bool flag = false;
    int fd = 0;
    const int gate = eventfd(0, EFD_CLOEXEC);
    ANeuralNetworksSymmPerChannelQuantParams params = {0, 1, NULL};
    OK(ANeuralNetworksBurst_create(compilation, &burst));
    OK(ANeuralNetworksMemoryDesc_create(&desc));

    EXPECT(UNEXPECTED_NULL, ANeuralNetworksMemory_createFromFd(16, PROT_READ, 1, 0, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksMemory_createFromAHardwareBuffer(NULL, &memory));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksMemory_createFromAHardwareBuffer((const AHardwareBuffer*)&fd, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksMemory_createFromDesc(NULL, &memory));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksMemory_createFromDesc(desc, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksMemory_copy(NULL, memory));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksMemory_copy(memory, NULL));

    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_create(NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_finish(NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_addOperand(NULL, &type));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_addOperand(model, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_setOperandValue(NULL, 0, ONES, 16));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_setOperandValue(model, 0, NULL, 16));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_setOperandValueFromMemory(NULL, 0, memory, 0, 16));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_setOperandValueFromMemory(model, 0, NULL, 0, 16));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_setOperandValueFromModel(NULL, 0, whole));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_setOperandValueFromModel(model, 0, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(NULL, 0, &params));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(model, 0, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_addOperation(NULL, ANEURALNETWORKS_ADD, 1, FOUR, 1, FOUR));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_identifyInputsAndOutputs(NULL, 1, FOUR, 1, FOUR));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_relaxComputationFloat32toFloat16(NULL, true));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_getSupportedOperationsForDevices(NULL, &device, 1, &flag));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_getSupportedOperationsForDevices(whole, NULL, 1, &flag));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_getSupportedOperationsForDevices(whole, &device, 1, NULL));

    EXPECT(UNEXPECTED_NULL, ANeuralNetworksCompilation_create(NULL, &compilation));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksCompilation_create(whole, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksCompilation_createForDevices(NULL, &device, 1, &compilation));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksCompilation_createForDevices(whole, NULL, 1, &compilation));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksCompilation_createForDevices(whole, &device, 1, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksCompilation_setPreference(NULL, 0));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksCompilation_setPriority(NULL, 90));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksCompilation_setTimeout(NULL, 1));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksCompilation_setCaching(NULL, "/tmp", token));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksCompilation_setCaching(compilation, NULL, token));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksCompilation_setCaching(compilation, "/tmp", NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksCompilation_finish(NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksCompilation_getPreferredMemoryAlignmentForInput(NULL, 0, &number));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksCompilation_getPreferredMemoryAlignmentForInput(compilation, 0, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksCompilation_getPreferredMemoryPaddingForInput(compilation, 0, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksCompilation_getPreferredMemoryAlignmentForOutput(compilation, 0, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksCompilation_getPreferredMemoryPaddingForInput(NULL, 0, &number));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksCompilation_getPreferredMemoryAlignmentForOutput(NULL, 0, &number));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksCompilation_getPreferredMemoryPaddingForOutput(NULL, 0, &number));
    EXPECT(UNEXPECTED_NULL, nnhal_compilation_set_recovery(NULL, 1));

    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_create(NULL, &execution));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_create(compilation, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_setInput(NULL, 0, NULL, ONES, 16));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_setInput(execution, 0, NULL, NULL, 16));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_setInputFromMemory(NULL, 0, NULL, memory, 0, 16));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_setInputFromMemory(execution, 0, NULL, NULL, 0, 16));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_setOutput(NULL, 0, NULL, &token, 16));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_setOutput(execution, 0, NULL, NULL, 16));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_setOutputFromMemory(NULL, 0, NULL, memory, 0, 16));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_setOutputFromMemory(execution, 0, NULL, NULL, 0, 16));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_startCompute(NULL, &event));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_startCompute(execution, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_startComputeWithDependencies(NULL, NULL, 0, 0, &event));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_startComputeWithDependencies(execution, NULL, 0, 0, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_startComputeWithDependencies(execution, NULL, 1, 0, &event));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_compute(NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_burstCompute(NULL, burst));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_burstCompute(execution, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_setTimeout(NULL, 0));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_setLoopTimeout(NULL, 0));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_setMeasureTiming(NULL, true));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_getDuration(NULL, 0, &duration));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_getDuration(execution, 0, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_getOutputOperandRank(NULL, 0, &number));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_getOutputOperandRank(execution, 0, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_getOutputOperandDimensions(NULL, 0, &number));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_getOutputOperandDimensions(execution, 0, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_setReusable(NULL, true));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_enableInputAndOutputPadding(NULL, true));

    EXPECT(UNEXPECTED_NULL, ANeuralNetworksBurst_create(NULL, &burst));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksBurst_create(compilation, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksEvent_wait(NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksEvent_createFromSyncFenceFd(1, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksEvent_getSyncFenceFd(NULL, &fd));
    EXPECT_TRUE(fd == -1);
    OK(ANeuralNetworksEvent_createFromSyncFenceFd(gate, &event));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksEvent_getSyncFenceFd(event, NULL));
    ANeuralNetworksEvent_free(event);
    close(gate);

    EXPECT(UNEXPECTED_NULL, ANeuralNetworks_getDeviceCount(NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworks_getDevice(0, NULL));
    EXPECT(BAD_DATA, ANeuralNetworks_getDevice(999, &some_device));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksDevice_getName(NULL, &text));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksDevice_getName(device, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksDevice_getType(NULL, &code));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksDevice_getType(device, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksDevice_getVersion(NULL, &text));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksDevice_getVersion(device, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksDevice_getFeatureLevel(NULL, &level));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksDevice_getFeatureLevel(device, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksDevice_wait(NULL));

    EXPECT(UNEXPECTED_NULL, ANeuralNetworksMemoryDesc_create(NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksMemoryDesc_addInputRole(NULL, compilation, 0, 1));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksMemoryDesc_addInputRole(desc, NULL, 0, 1));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksMemoryDesc_addOutputRole(NULL, compilation, 0, 1));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksMemoryDesc_addOutputRole(desc, NULL, 0, 1));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksMemoryDesc_setDimensions(NULL, 1, FOUR));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksMemoryDesc_setDimensions(desc, 1, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksMemoryDesc_finish(NULL));

    EXPECT(UNEXPECTED_NULL, ANeuralNetworksDevice_getExtensionSupport(NULL, "com.a.b", &flag));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksDevice_getExtensionSupport(device, NULL, &flag));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksDevice_getExtensionSupport(device, "com.a.b", NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_getExtensionOperandType(NULL, "com.a.b", 0, &code));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_getExtensionOperandType(model, NULL, 0, &code));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_getExtensionOperandType(model, "com.a.b", 0, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_getExtensionOperationType(NULL, "com.a.b", 0, &code));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_getExtensionOperationType(model, NULL, 0, &code));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_getExtensionOperationType(model, "com.a.b", 0, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_setOperandExtensionData(NULL, 0, ONES, 4));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_setOperandExtensionData(model, 0, NULL, 4));
    EXPECT(BAD_DATA, ANeuralNetworksModel_getExtensionOperandType(model, "com.nobody.has_this", 0, &code));

    ANeuralNetworksMemory_free(NULL);
    ANeuralNetworksModel_free(NULL);
    ANeuralNetworksCompilation_free(NULL);
    ANeuralNetworksExecution_free(NULL);
    ANeuralNetworksBurst_free(NULL);
    ANeuralNetworksEvent_free(NULL);
    ANeuralNetworksMemoryDesc_free(NULL);

    // What was freed already, or is something else, is told from what is alive.
    ANeuralNetworksModel_free(model);
    ANeuralNetworksModel_free(model);
    EXPECT(BAD_STATE, ANeuralNetworksModel_finish(model));
    EXPECT(BAD_DATA, ANeuralNetworksModel_finish((ANeuralNetworksModel*)compilation));
    EXPECT(BAD_DATA, ANeuralNetworksModel_finish((ANeuralNetworksModel*)&token));
    ANeuralNetworksExecution_free(execution);
    ANeuralNetworksBurst_free(burst);
    ANeuralNetworksCompilation_free(compilation);
    ANeuralNetworksModel_free(whole);
    ANeuralNetworksMemory_free(memory);
    ANeuralNetworksMemoryDesc_free(desc);
}

// A call that fails leaves no pointer behind.
static void nulled(void) {
    void* anything = &failures;
    ANeuralNetworksModel* model = unfinished_add();
    ANeuralNetworksCompilation* unfinished = NULL;
    ANeuralNetworksModel* whole = add_model();
    const ANeuralNetworksDevice* device = test_device();
    OK(ANeuralNetworksCompilation_create(whole, &unfinished));
    ANeuralNetworksCompilation* compilation = anything;
    EXPECT(BAD_STATE, ANeuralNetworksCompilation_create(model, &compilation));
    EXPECT_TRUE(compilation == NULL);
    compilation = anything;
    EXPECT(BAD_STATE, ANeuralNetworksCompilation_createForDevices(model, &device, 1, &compilation));
    EXPECT_TRUE(compilation == NULL);
    ANeuralNetworksExecution* execution = anything;
    EXPECT(BAD_STATE, ANeuralNetworksExecution_create(unfinished, &execution));
    EXPECT_TRUE(execution == NULL);
    ANeuralNetworksBurst* burst = anything;
    EXPECT(BAD_STATE, ANeuralNetworksBurst_create(unfinished, &burst));
    EXPECT_TRUE(burst == NULL);
    ANeuralNetworksMemory* memory = anything;
    EXPECT(BAD_DATA, ANeuralNetworksMemory_createFromFd(16, PROT_READ, -1, 0, &memory));
    EXPECT_TRUE(memory == NULL);
    memory = anything;
    EXPECT(OP_FAILED, ANeuralNetworksMemory_createFromAHardwareBuffer((const AHardwareBuffer*)anything, &memory));
    EXPECT_TRUE(memory == NULL);
    ANeuralNetworksMemoryDesc* desc = NULL;
    OK(ANeuralNetworksMemoryDesc_create(&desc));
    memory = anything;
    EXPECT(BAD_STATE, ANeuralNetworksMemory_createFromDesc(desc, &memory));
    EXPECT_TRUE(memory == NULL);
    ANeuralNetworksEvent* event = anything;
    EXPECT(BAD_DATA, ANeuralNetworksEvent_createFromSyncFenceFd(-1, &event));
    EXPECT_TRUE(event == NULL);
    ANeuralNetworksDevice* none = anything;
    EXPECT(BAD_DATA, ANeuralNetworks_getDevice(999, &none));
    EXPECT_TRUE(none == NULL);
    OK(ANeuralNetworksCompilation_finish(unfinished));
    OK(ANeuralNetworksExecution_create(unfinished, &execution));
    event = anything;
    EXPECT(BAD_DATA, ANeuralNetworksExecution_startCompute(execution, &event));
    EXPECT_TRUE(event == NULL);
    event = anything;
    EXPECT(BAD_DATA, ANeuralNetworksExecution_startComputeWithDependencies(execution, NULL, 0, 0, &event));
    EXPECT_TRUE(event == NULL);
    ANeuralNetworksExecution_free(execution);
    ANeuralNetworksMemoryDesc_free(desc);
    ANeuralNetworksCompilation_free(unfinished);
    ANeuralNetworksModel_free(whole);
    ANeuralNetworksModel_free(model);
}

// Operands that contradict themselves.
static void n010(void) {
    ANeuralNetworksModel* model = new_model();
    EXPECT(BAD_DATA, add_operand(model, type_of(ANEURALNETWORKS_TENSOR_QUANT8_ASYMM, 1, FOUR, -1, 0)));
    EXPECT(BAD_DATA, add_operand(model, type_of(ANEURALNETWORKS_TENSOR_QUANT8_ASYMM, 1, FOUR, 1, -1)));
    EXPECT(BAD_DATA, add_operand(model, type_of(ANEURALNETWORKS_INT32, 1, FOUR, 0, 0)));
    EXPECT(BAD_DATA, add_operand(model, type_of(TENSOR, 1, NULL, 0, 0)));
    EXPECT(BAD_DATA, add_operand(model, type_of(TENSOR, 0, FOUR, 0, 0)));
    EXPECT(BAD_DATA, add_operand(model, type_of(-1, 1, FOUR, 0, 0)));
    EXPECT(BAD_DATA, add_operand(model, type_of(16, 1, FOUR, 0, 0)));
    EXPECT(BAD_DATA, add_operand(model, type_of(TENSOR, 1, FOUR, 1, 0)));
    OK(add_operand(model, type_of(ANEURALNETWORKS_TENSOR_QUANT8_ASYMM, 1, FOUR, 1, 255)));
    ANeuralNetworksModel_free(model);
}

static void n011(void) {
    ANeuralNetworksModel* model = add_model();
    EXPECT(BAD_STATE, add_operand(model, type_of(TENSOR, 1, FOUR, 0, 0)));
    EXPECT(BAD_STATE, add_operand(model, type_of(-1, 0, NULL, 0, 0)));
    ANeuralNetworksModel_free(model);
}

// Sizes that 32 bits cannot say.
static void n012(void) {
    ANeuralNetworksModel* model = new_model();
    const uint32_t large[2] = {66000, 66000}, half[2] = {32768, 32768};
    EXPECT(BAD_DATA, add_operand(model, type_of(TENSOR, 2, large, 0, 0)));
    EXPECT(BAD_DATA, add_operand(model, type_of(TENSOR, 2, half, 0, 0)));
    EXPECT(BAD_DATA, add_operand(model, type_of(ANEURALNETWORKS_TENSOR_QUANT8_ASYMM, 2, large, 1, 0)));
    ANeuralNetworksModel_free(model);
}

static void n013(void) {
    ANeuralNetworksModel* model = new_model();
    const uint32_t dimensions[2] = {2, 3};
    float scales[3] = {1, 2, 3};
    ANeuralNetworksSymmPerChannelQuantParams params = {1, 3, scales};
    OK(add_operand(model, type_of(ANEURALNETWORKS_TENSOR_QUANT8_SYMM_PER_CHANNEL, 2, dimensions, 0, 0)));
    OK(add_operand(model, type_of(TENSOR, 2, dimensions, 0, 0)));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(model, 2, &params));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(model, -1, &params));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(model, 1, &params));
    params.channelDim = 2;
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(model, 0, &params));
    params.channelDim = 0;
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(model, 0, &params));
    params.channelDim = 1;
    scales[2] = 0;
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(model, 0, &params));
    scales[2] = 3;
    OK(ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(model, 0, &params));
    // A list inside a structure that is NULL is bad data, unlike an argument that is.
    params.scales = NULL;
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(model, 0, &params));
    params = (ANeuralNetworksSymmPerChannelQuantParams){1, 0, scales};
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(model, 0, &params));
    params.scales = NULL;
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(model, 0, &params));
    ANeuralNetworksModel_free(model);
}

static void n014(void) {
    ANeuralNetworksModel* model = unfinished_add();
    float values[100] = {0};
    OK(ANeuralNetworksModel_setOperandValue(model, 1, NULL, 0));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_setOperandValue(model, 1, NULL, 16));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandValue(model, 1, values, 12));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandValue(model, 1, values, 20));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandValue(model, 1, values, 400));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandValue(model, 4, values, 16));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandValue(model, -1, values, 16));
    OK(ANeuralNetworksModel_setOperandValue(model, 1, values, 16));
    OK(ANeuralNetworksModel_finish(model));
    EXPECT(BAD_STATE, ANeuralNetworksModel_setOperandValue(model, 1, values, 16));
    EXPECT(BAD_STATE, ANeuralNetworksModel_setOperandValue(model, 1, NULL, 0));
    ANeuralNetworksModel_free(model);
}

static void n015(void) {
    ANeuralNetworksModel* model = unfinished_add();
    ANeuralNetworksMemory* memory = new_memory(20);
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandValueFromMemory(model, -1, memory, 0, 16));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandValueFromMemory(model, 4, memory, 0, 16));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandValueFromMemory(model, 1, memory, 0, 12));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandValueFromMemory(model, 1, memory, 21, 16));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandValueFromMemory(model, 1, memory, 8, 16));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandValueFromMemory(model, 1, memory, (size_t)-8, 16));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandValueFromMemory(model, 1, memory, 0, 0));
    OK(ANeuralNetworksModel_setOperandValueFromMemory(model, 1, memory, 4, 16));
    OK(ANeuralNetworksModel_finish(model));
    EXPECT(BAD_STATE, ANeuralNetworksModel_setOperandValueFromMemory(model, 1, memory, 4, 16));
    ANeuralNetworksModel_free(model);
    ANeuralNetworksMemory_free(memory);
}

// A dma-buf, where this kernel makes one: what is behind a hardware buffer of bytes.
static int new_dma_buf(void) {
    int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
    int bytes = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int buffer = -1;
    if (device >= 0 && ftruncate(bytes, 4096) == 0 && fcntl(bytes, F_ADD_SEALS, F_SEAL_SHRINK) == 0) {
        struct udmabuf_create create = {(uint32_t)bytes, UDMABUF_FLAGS_CLOEXEC, 0, 4096};
        buffer = ioctl(device, UDMABUF_CREATE, &create);
    }
    if (device >= 0) {
        close(device);
    }
    close(bytes);
    return buffer;
}

// Values in a memory that has no bytes to be named, as hardware buffers of other formats than bytes have none: one that was
// made from a description. Values in one of bytes: a dma-buf, or any other memory that is mapped.
static void n016_values(void) {
    ANeuralNetworksModel *whole = add_model(), *model = unfinished_add();
    ANeuralNetworksCompilation* compilation = finished(new_compilation(whole));
    ANeuralNetworksMemoryDesc* desc = NULL;
    ANeuralNetworksMemory *formless = NULL, *bytes = NULL;
    OK(ANeuralNetworksMemoryDesc_create(&desc));
    OK(ANeuralNetworksMemoryDesc_addInputRole(desc, compilation, 0, 1));
    OK(ANeuralNetworksMemoryDesc_finish(desc));
    OK(ANeuralNetworksMemory_createFromDesc(desc, &formless));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandValueFromMemory(model, 1, formless, 0, 0));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandValueFromMemory(model, 1, formless, 0, 16));

    int buffer = new_dma_buf();
    if (buffer < 0) {
        bytes = new_memory(4096);
    } else {
        OK(ANeuralNetworksMemory_createFromFd(4096, PROT_READ | PROT_WRITE, buffer, 0, &bytes));
        close(buffer);
    }
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandValueFromMemory(model, 1, bytes, 4096 - 8, 16));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandValueFromMemory(model, 1, bytes, 4097, 16));
    OK(ANeuralNetworksModel_setOperandValueFromMemory(model, 1, bytes, 4096 - 16, 16));
    OK(ANeuralNetworksModel_finish(model));
    ANeuralNetworksMemory_free(bytes);
    ANeuralNetworksMemory_free(formless);
    ANeuralNetworksMemoryDesc_free(desc);
    ANeuralNetworksCompilation_free(compilation);
    ANeuralNetworksModel_free(model);
    ANeuralNetworksModel_free(whole);
}

// This system has no hardware buffers.
static void n016(void) {
    n016_values();
    ANeuralNetworksMemory* memory = NULL;
    int anything = 0;
    EXPECT(OP_FAILED, ANeuralNetworksMemory_createFromAHardwareBuffer((const AHardwareBuffer*)&anything, &memory));
    EXPECT_TRUE(memory == NULL);
    EXPECT(BAD_DATA, ANeuralNetworksMemory_createFromFd(16, PROT_READ, -1, 0, &memory));
    EXPECT(BAD_DATA, ANeuralNetworksMemory_createFromFd(0, PROT_READ, 1, 0, &memory));
}

static void n017(void) {
    ANeuralNetworksModel* model = unfinished_add();
    ANeuralNetworksModel* inner = unfinished_add();
    OK(add_operand(model, type_of(ANEURALNETWORKS_MODEL, 0, NULL, 0, 0)));
    EXPECT(BAD_STATE, ANeuralNetworksModel_setOperandValueFromModel(model, 4, inner));
    OK(ANeuralNetworksModel_finish(inner));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandValueFromModel(model, -1, inner));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandValueFromModel(model, 5, inner));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandValueFromModel(model, 1, inner));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandValue(model, 4, ONES, 4));
    OK(ANeuralNetworksModel_setOperandValueFromModel(model, 4, inner));
    OK(ANeuralNetworksModel_finish(model));
    EXPECT(BAD_STATE, ANeuralNetworksModel_setOperandValueFromModel(model, 4, inner));
    ANeuralNetworksModel_free(model);
    ANeuralNetworksModel_free(inner);
}

// Values of OEM types have whatever length they have.
static void n018(void) {
    ANeuralNetworksModel* model = unfinished_add();
    const char bytes[20] = {0};
    OK(add_operand(model, type_of(ANEURALNETWORKS_OEM_SCALAR, 0, NULL, 0, 0)));
    OK(add_operand(model, type_of(ANEURALNETWORKS_TENSOR_OEM_BYTE, 1, FOUR, 0, 0)));
    OK(ANeuralNetworksModel_setOperandValue(model, 4, bytes, 20));
    OK(ANeuralNetworksModel_setOperandValue(model, 5, bytes, 4));
    OK(ANeuralNetworksModel_finish(model));
    EXPECT(BAD_STATE, add_operand(model, type_of(ANEURALNETWORKS_OEM_SCALAR, 0, NULL, 0, 0)));
    ANeuralNetworksModel_free(model);
}

static void n019_control_flow(void);

static void n019(void) {
    n019_control_flow();
    ANeuralNetworksModel* model = unfinished_add();
    uint32_t inputs[3] = {0, 1, 2}, output = 3, outside = 99;
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_ADD, 0, NULL, 1, &output));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_ADD, 3, inputs, 0, NULL));
    EXPECT(BAD_DATA, ANeuralNetworksModel_addOperation(model, -1, 3, inputs, 1, &output));
    EXPECT(BAD_DATA, ANeuralNetworksModel_addOperation(model, 102, 3, inputs, 1, &output));
    EXPECT(BAD_DATA, ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_ADD, 3, inputs, 1, &outside));
    EXPECT(BAD_DATA, ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_ADD, 1, &outside, 1, &output));
    EXPECT(BAD_DATA, ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_ADD, 2, inputs, 1, &output));
    EXPECT(BAD_DATA, ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_LOGICAL_AND, 2, inputs, 1, &output));
    OK(ANeuralNetworksModel_finish(model));
    EXPECT(BAD_STATE, ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_ADD, 3, inputs, 1, &output));
    ANeuralNetworksModel_free(model);
}

// y = RELU(x), with an input that nothing reads if there are two.
static ANeuralNetworksModel* branch(uint32_t inputs) {
    const uint32_t one[1] = {1};
    ANeuralNetworksModel* model = new_model();
    uint32_t arguments[2] = {0, 2}, output = 1;
    for (uint32_t operand = 0; operand <= inputs; operand++) {
        OK(add_operand(model, type_of(TENSOR, 1, one, 0, 0)));
    }
    OK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_RELU, 1, arguments, 1, &output));
    OK(ANeuralNetworksModel_identifyInputsAndOutputs(model, inputs, arguments, 1, &output));
    OK(ANeuralNetworksModel_finish(model));
    return model;
}

// IF and WHILE are held to their signatures when they are added, as other operations are.
static void n019_control_flow(void) {
    const uint32_t one[1] = {1};
    ANeuralNetworksModel *model = new_model(), *fitting = branch(1), *greedy = branch(2);
    uint32_t output = 4, condition = 0;
    OK(add_operand(model, type_of(ANEURALNETWORKS_TENSOR_BOOL8, 1, one, 0, 0)));
    OK(add_operand(model, type_of(ANEURALNETWORKS_MODEL, 0, NULL, 0, 0)));
    OK(add_operand(model, type_of(ANEURALNETWORKS_MODEL, 0, NULL, 0, 0)));
    OK(add_operand(model, type_of(TENSOR, 1, one, 0, 0)));
    OK(add_operand(model, type_of(TENSOR, 1, one, 0, 0)));
    OK(add_operand(model, type_of(ANEURALNETWORKS_MODEL, 0, NULL, 0, 0)));
    OK(ANeuralNetworksModel_setOperandValueFromModel(model, 1, fitting));
    OK(ANeuralNetworksModel_setOperandValueFromModel(model, 5, greedy));
    const uint32_t good[4] = {0, 1, 2, 3}, no_graph[4] = {0, 1, 3, 3}, no_condition[4] = {3, 1, 2, 3};
    const uint32_t another[4] = {0, 1, 5, 3};
    EXPECT(BAD_DATA, ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_IF, 2, good, 1, &output));
    EXPECT(BAD_DATA, ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_IF, 3, good, 1, &output));
    EXPECT(BAD_DATA, ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_IF, 4, no_graph, 1, &output));
    EXPECT(BAD_DATA, ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_IF, 4, no_condition, 1, &output));
    EXPECT(BAD_DATA, ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_IF, 4, another, 1, &output));
    EXPECT(BAD_DATA, ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_WHILE, 4, good, 1, &output));
    // The second branch's model may be given later.
    OK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_IF, 4, good, 1, &output));
    OK(ANeuralNetworksModel_setOperandValueFromModel(model, 2, fitting));
    uint32_t arguments[2] = {condition, 3};
    OK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 2, arguments, 1, &output));
    OK(ANeuralNetworksModel_finish(model));
    ANeuralNetworksModel_free(model);
    ANeuralNetworksModel_free(fitting);
    ANeuralNetworksModel_free(greedy);
}

static void n020(void) {
    ANeuralNetworksModel* model = unfinished_add();
    uint32_t input = 0, constant = 1, output = 3, outside = 4, both[2] = {0, 3}, twice[2] = {0, 0};
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_identifyInputsAndOutputs(model, 0, NULL, 1, &output));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, &input, 0, NULL));
    EXPECT(BAD_DATA, ANeuralNetworksModel_identifyInputsAndOutputs(model, 2, both, 1, &output));
    EXPECT(BAD_DATA, ANeuralNetworksModel_identifyInputsAndOutputs(model, 2, twice, 1, &output));
    EXPECT(BAD_DATA, ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, &input, 1, &outside));
    EXPECT(BAD_DATA, ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, &constant, 1, &output));
    OK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, &input, 1, &output));
    OK(ANeuralNetworksModel_finish(model));
    EXPECT(BAD_STATE, ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, &input, 1, &output));
    ANeuralNetworksModel_free(model);
}

static void n021(void) {
    ANeuralNetworksModel* model = unfinished_add();
    OK(ANeuralNetworksModel_relaxComputationFloat32toFloat16(model, true));
    OK(ANeuralNetworksModel_relaxComputationFloat32toFloat16(model, false));
    OK(ANeuralNetworksModel_finish(model));
    EXPECT(BAD_STATE, ANeuralNetworksModel_relaxComputationFloat32toFloat16(model, true));
    EXPECT(BAD_STATE, ANeuralNetworksModel_relaxComputationFloat32toFloat16(model, false));
    ANeuralNetworksModel_free(model);
}

static void n022(void) {
    ANeuralNetworksModel* model = new_model();
    EXPECT(BAD_DATA, ANeuralNetworksModel_finish(model));
    // It is invalid from now on.
    EXPECT(BAD_STATE, ANeuralNetworksModel_finish(model));
    EXPECT(BAD_STATE, add_operand(model, type_of(TENSOR, 1, FOUR, 0, 0)));
    ANeuralNetworksModel_free(model);
    model = add_model();
    EXPECT(BAD_STATE, ANeuralNetworksModel_finish(model));
    ANeuralNetworksModel_free(model);
}

// x, and four more floats that operations may write: RELU from -> to for each pair.
static int chain(const uint32_t (*pairs)[2], size_t count) {
    ANeuralNetworksModel* model = new_model();
    uint32_t input = 0, output = 4;
    for (int operand = 0; operand < 5; operand++) {
        OK(add_operand(model, type_of(TENSOR, 1, FOUR, 0, 0)));
    }
    for (size_t at = 0; at < count; at++) {
        OK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_RELU, 1, &pairs[at][0], 1, &pairs[at][1]));
    }
    OK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, &input, 1, &output));
    int code = ANeuralNetworksModel_finish(model);
    ANeuralNetworksModel_free(model);
    return code;
}

static void n023(void) {
    const uint32_t forward[4][2] = {{0, 1}, {1, 2}, {2, 3}, {3, 4}};
    const uint32_t backward[4][2] = {{3, 4}, {2, 3}, {1, 2}, {0, 1}};
    const uint32_t mixed[4][2] = {{1, 2}, {3, 4}, {0, 1}, {2, 3}};
    const uint32_t cycle[4][2] = {{0, 1}, {3, 2}, {2, 3}, {3, 4}};
    const uint32_t never_written[3][2] = {{0, 1}, {2, 3}, {3, 4}};
    const uint32_t output_unwritten[3][2] = {{0, 1}, {1, 2}, {2, 3}};
    const uint32_t twice[5][2] = {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {0, 4}};
    const uint32_t input_written[5][2] = {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {1, 0}};
    OK(chain(forward, 4));
    OK(chain(backward, 4));
    OK(chain(mixed, 4));
    EXPECT(BAD_DATA, chain(cycle, 4));
    EXPECT(BAD_DATA, chain(never_written, 3));
    EXPECT(BAD_DATA, chain(output_unwritten, 3));
    EXPECT(BAD_DATA, chain(twice, 5));
    EXPECT(BAD_DATA, chain(input_written, 5));
}

static void n030(void) {
    ANeuralNetworksModel* model = unfinished_add();
    ANeuralNetworksCompilation* compilation = NULL;
    EXPECT(BAD_STATE, ANeuralNetworksCompilation_create(model, &compilation));
    EXPECT_TRUE(compilation == NULL);
    ANeuralNetworksModel_free(model);
}

// Lists of devices are looked at before the state of the model.
static void n031(void) {
    ANeuralNetworksModel* model = unfinished_add();
    ANeuralNetworksCompilation* compilation = NULL;
    const ANeuralNetworksDevice* device = test_device();
    const ANeuralNetworksDevice* twice[2] = {device, device};
    const ANeuralNetworksDevice* hole[2] = {device, NULL};
    EXPECT(BAD_DATA, ANeuralNetworksCompilation_createForDevices(model, &device, 0, &compilation));
    EXPECT(BAD_DATA, ANeuralNetworksCompilation_createForDevices(model, twice, 2, &compilation));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksCompilation_createForDevices(model, hole, 2, &compilation));
    EXPECT(BAD_STATE, ANeuralNetworksCompilation_createForDevices(model, &device, 1, &compilation));
    EXPECT_TRUE(compilation == NULL);
    ANeuralNetworksModel_free(model);
}

static void n032(void) {
    ANeuralNetworksModel* model = unfinished_add();
    const ANeuralNetworksDevice* device = test_device();
    const ANeuralNetworksDevice* twice[2] = {device, device};
    const ANeuralNetworksDevice* hole[2] = {device, NULL};
    bool supported[1] = {false};
    EXPECT(BAD_DATA, ANeuralNetworksModel_getSupportedOperationsForDevices(model, &device, 0, supported));
    EXPECT(BAD_DATA, ANeuralNetworksModel_getSupportedOperationsForDevices(model, twice, 2, supported));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksModel_getSupportedOperationsForDevices(model, hole, 2, supported));
    EXPECT(BAD_STATE, ANeuralNetworksModel_getSupportedOperationsForDevices(model, &device, 1, supported));
    OK(ANeuralNetworksModel_finish(model));
    OK(ANeuralNetworksModel_getSupportedOperationsForDevices(model, &device, 1, supported));
    EXPECT_TRUE(supported[0]);
    ANeuralNetworksModel_free(model);
}

static void n033(void) {
    ANeuralNetworksModel* model = add_model();
    ANeuralNetworksCompilation* compilation = new_compilation(model);
    const int priorities[7] = {0, 89, 91, 99, 101, 109, 111};
    EXPECT(BAD_DATA, ANeuralNetworksCompilation_setPreference(compilation, 40));
    EXPECT(BAD_DATA, ANeuralNetworksCompilation_setPreference(compilation, -1));
    for (int at = 0; at < 7; at++) {
        EXPECT(BAD_DATA, ANeuralNetworksCompilation_setPriority(compilation, priorities[at]));
    }
    OK(ANeuralNetworksCompilation_setPreference(compilation, ANEURALNETWORKS_PREFER_SUSTAINED_SPEED));
    OK(ANeuralNetworksCompilation_setPriority(compilation, ANEURALNETWORKS_PRIORITY_HIGH));
    OK(ANeuralNetworksCompilation_setPriority(compilation, ANEURALNETWORKS_PRIORITY_DEFAULT));
    finished(compilation);
    ANeuralNetworksCompilation_free(compilation);
    ANeuralNetworksModel_free(model);
}

static void n034(void) {
    ANeuralNetworksModel* model = add_model();
    ANeuralNetworksCompilation* compilation = NULL;
    ANeuralNetworksDevice* cpu = NULL;
    uint32_t count = 0;
    OK(ANeuralNetworksCompilation_create(model, &compilation));
    EXPECT(BAD_DATA, ANeuralNetworksCompilation_setTimeout(compilation, 1000));
    ANeuralNetworksCompilation_free(compilation);

    OK(ANeuralNetworks_getDeviceCount(&count));
    OK(ANeuralNetworks_getDevice(count - 1, &cpu));
    const ANeuralNetworksDevice* two[2] = {test_device(), cpu};
    OK(ANeuralNetworksCompilation_createForDevices(model, two, 2, &compilation));
    EXPECT(BAD_DATA, ANeuralNetworksCompilation_setTimeout(compilation, 1000));
    ANeuralNetworksCompilation_free(compilation);

    compilation = new_compilation(model);
    OK(ANeuralNetworksCompilation_setTimeout(compilation, 1));
    EXPECT_DONE_OR_MISSED(ANeuralNetworksCompilation_finish(compilation));
    ANeuralNetworksCompilation_free(compilation);

    compilation = new_compilation(model);
    OK(ANeuralNetworksCompilation_setTimeout(compilation, UINT64_MAX));
    finished(compilation);
    ANeuralNetworksCompilation_free(compilation);
    ANeuralNetworksModel_free(model);
}

static void n035(void) {
    ANeuralNetworksModel* model = add_model();
    ANeuralNetworksCompilation* compilation = finished(new_compilation(model));
    const uint8_t token[32] = {0};
    EXPECT(BAD_STATE, ANeuralNetworksCompilation_setPreference(compilation, ANEURALNETWORKS_PREFER_LOW_POWER));
    EXPECT(BAD_STATE, ANeuralNetworksCompilation_setPriority(compilation, ANEURALNETWORKS_PRIORITY_LOW));
    EXPECT(BAD_STATE, ANeuralNetworksCompilation_setTimeout(compilation, 1000));
    EXPECT(BAD_STATE, ANeuralNetworksCompilation_setCaching(compilation, "/nowhere", token));
    EXPECT(BAD_STATE, ANeuralNetworksCompilation_finish(compilation));
    ANeuralNetworksCompilation_free(compilation);
    ANeuralNetworksModel_free(model);
}

// An operation that no driver has: compiling it fails.
static ANeuralNetworksModel* oem_model(void) {
    ANeuralNetworksModel* model = new_model();
    uint32_t input = 0, output = 1;
    OK(add_operand(model, type_of(TENSOR, 1, FOUR, 0, 0)));
    OK(add_operand(model, type_of(TENSOR, 1, FOUR, 0, 0)));
    OK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_OEM_OPERATION, 1, &input, 1, &output));
    OK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, &input, 1, &output));
    OK(ANeuralNetworksModel_finish(model));
    return model;
}

static void n036(void) {
    ANeuralNetworksModel* model = add_model();
    ANeuralNetworksCompilation* compilation = new_compilation(model);
    ANeuralNetworksExecution* execution = NULL;
    ANeuralNetworksBurst* burst = NULL;
    uint32_t alignment = 0;
    EXPECT(BAD_STATE, ANeuralNetworksExecution_create(compilation, &execution));
    EXPECT(BAD_STATE, ANeuralNetworksBurst_create(compilation, &burst));
    EXPECT(BAD_STATE, ANeuralNetworksCompilation_getPreferredMemoryAlignmentForInput(compilation, 0, &alignment));
    finished(compilation);
    OK(ANeuralNetworksCompilation_getPreferredMemoryAlignmentForInput(compilation, 0, &alignment));
    EXPECT_TRUE(alignment > 0 && (alignment & (alignment - 1)) == 0);
    EXPECT(BAD_DATA, ANeuralNetworksCompilation_getPreferredMemoryAlignmentForInput(compilation, 1, &alignment));
    ANeuralNetworksCompilation_free(compilation);
    ANeuralNetworksModel_free(model);

    model = oem_model();
    OK(ANeuralNetworksCompilation_create(model, &compilation));
    EXPECT(BAD_DATA, ANeuralNetworksCompilation_finish(compilation));
    EXPECT(BAD_STATE, ANeuralNetworksExecution_create(compilation, &execution));
    EXPECT(BAD_STATE, ANeuralNetworksBurst_create(compilation, &burst));
    EXPECT(BAD_STATE, ANeuralNetworksCompilation_finish(compilation));
    EXPECT_TRUE(execution == NULL && burst == NULL);
    ANeuralNetworksCompilation_free(compilation);
    ANeuralNetworksModel_free(model);
}

int main(int count, char** names) {
    static const Case cases[] = {
        {"n001", n001}, {"n010", n010}, {"n011", n011}, {"n012", n012}, {"n013", n013}, {"n014", n014},
        {"n015", n015}, {"n016", n016}, {"n017", n017}, {"n018", n018}, {"n019", n019}, {"n020", n020},
        {"n021", n021}, {"n022", n022}, {"n023", n023}, {"n030", n030}, {"n031", n031}, {"n032", n032},
        {"n033", n033}, {"n034", n034}, {"n035", n035}, {"n036", n036}, {"nulled", nulled},
    };
    return run_cases(count, names, cases, sizeof cases / sizeof *cases);
}
