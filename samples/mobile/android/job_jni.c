/*
 * job_jni.c - phone/job.h for Java and Kotlin: the native half of org.example.rounds.Job
 * (RoundWorker.kt). Compiled where a jni.h is found; not tested on a device.
 */
#include "../job/job.h"

#include <jni.h>

#define SIGNING_KEY_BYTES 65
#define ERROR_BYTES 256

/* The names are Java's: package, class, method. */
#define JOB(type, name) JNIEXPORT type JNICALL Java_org_example_rounds_Job_##name
JOB(jlong, open)
(JNIEnv *env, jclass job_class, jstring folder, jstring url, jstring ca_file, jbyteArray key,
 jlong budget_bytes);
JOB(void, close)(JNIEnv *env, jclass job_class, jlong handle);
JOB(jboolean, add)(JNIEnv *env, jclass job_class, jlong handle, jbyteArray pixels, jint label);
JOB(jint, run)(JNIEnv *env, jclass job_class, jlong handle);
JOB(jlong, waitMs)(JNIEnv *env, jclass job_class, jlong handle);
JOB(void, expire)(JNIEnv *env, jclass job_class, jlong handle);
JOB(void, setConditions)
(JNIEnv *env, jclass job_class, jlong handle, jboolean is_charging, jboolean is_unmetered);
JOB(void, setPressure)(JNIEnv *env, jclass job_class, jlong handle, jint pressure);
JOB(jboolean, withdraw)(JNIEnv *env, jclass job_class, jlong handle);

static phone_job *job_of(jlong handle)
{
    return (phone_job *)(intptr_t)handle;
}

static void throw_state(JNIEnv *env, const char *text)
{
    jclass type = (*env)->FindClass(env, "java/lang/IllegalStateException");
    if (type != NULL) {
        (void)(*env)->ThrowNew(env, type, text);
    }
}

JOB(jlong, open)
(JNIEnv *env, jclass job_class, jstring folder, jstring url, jstring ca_file, jbyteArray key,
 jlong budget_bytes)
{
    uint8_t signing_key[SIGNING_KEY_BYTES];
    char error[ERROR_BYTES] = "";
    (void)job_class;
    if ((*env)->GetArrayLength(env, key) != SIGNING_KEY_BYTES) {
        throw_state(env, "the server's signing key has 65 bytes");
        return 0;
    }
    (*env)->GetByteArrayRegion(env, key, 0, SIGNING_KEY_BYTES, (jbyte *)signing_key);
    const char *texts[3] = {NULL, NULL, NULL};
    const jstring strings[3] = {folder, url, ca_file};
    phone_job *job = NULL;
    int n = 0;
    while (n < 3 && (texts[n] = (*env)->GetStringUTFChars(env, strings[n], NULL)) != NULL) {
        n++;
    }
    if (n == 3) {
        const phone_job_settings settings = {.folder = texts[0],
                                             .server_url = texts[1],
                                             .ca_file = texts[2],
                                             .signing_key = signing_key,
                                             .budget_bytes = (uint64_t)budget_bytes};
        job = job_open(&settings, error, sizeof error);
        if (job == NULL) {
            throw_state(env, error);
        }
    } /* else an OutOfMemoryError is on its way */
    while (n-- > 0) {
        (*env)->ReleaseStringUTFChars(env, strings[n], texts[n]);
    }
    return (jlong)(intptr_t)job;
}

JOB(void, close)(JNIEnv *env, jclass job_class, jlong handle)
{
    (void)env;
    (void)job_class;
    job_close(job_of(handle));
}

JOB(jboolean, add)(JNIEnv *env, jclass job_class, jlong handle, jbyteArray pixels, jint label)
{
    uint8_t bytes[784];
    (void)job_class;
    if ((*env)->GetArrayLength(env, pixels) != (jsize)sizeof bytes) {
        throw_state(env, "a drawing has 784 bytes");
        return JNI_FALSE;
    }
    (*env)->GetByteArrayRegion(env, pixels, 0, (jsize)sizeof bytes, (jbyte *)bytes);
    return job_add(job_of(handle), bytes, label) ? JNI_TRUE : JNI_FALSE;
}

JOB(jint, run)(JNIEnv *env, jclass job_class, jlong handle)
{
    (void)env;
    (void)job_class;
    return (jint)job_run(job_of(handle));
}

JOB(jlong, waitMs)(JNIEnv *env, jclass job_class, jlong handle)
{
    (void)env;
    (void)job_class;
    return job_wait_ms(job_of(handle));
}

JOB(void, expire)(JNIEnv *env, jclass job_class, jlong handle)
{
    (void)env;
    (void)job_class;
    job_expire(job_of(handle));
}

JOB(void, setConditions)
(JNIEnv *env, jclass job_class, jlong handle, jboolean is_charging, jboolean is_unmetered)
{
    (void)env;
    (void)job_class;
    job_set_conditions(job_of(handle), is_charging == JNI_TRUE, is_unmetered == JNI_TRUE);
}

JOB(void, setPressure)(JNIEnv *env, jclass job_class, jlong handle, jint pressure)
{
    (void)env;
    (void)job_class;
    job_set_pressure(job_of(handle), (phone_job_pressure)pressure);
}

JOB(jboolean, withdraw)(JNIEnv *env, jclass job_class, jlong handle)
{
    (void)env;
    (void)job_class;
    return job_withdraw(job_of(handle)) ? JNI_TRUE : JNI_FALSE;
}
